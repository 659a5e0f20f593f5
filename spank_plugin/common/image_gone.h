/* An image that was removed on its file server, or written to, is lost: ce-image tells the guard by its exit
 * code, the guard tells the plugin by the beginning of its cause. */
#ifndef CE_IMAGE_GONE_H
#define CE_IMAGE_GONE_H

/* the exit code of ce-image; EX_IOERR of sysexits.h, which none of its libraries uses */
enum { CE_IMAGE_GONE = 74 };
#define CE_CAUSE_GONE "the image can no longer be read: "

#endif
