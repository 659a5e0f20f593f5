/* An image that was removed from its file server, or written to, can no longer be served. ce-image reports
 * this to the guard by its exit code, and the guard to the plugin by the beginning of the cause that it
 * sends. */
#pragma once

/* ce-image's exit code in this case: EX_IOERR of sysexits.h, which none of its libraries uses */
enum { CE_IMAGE_GONE = 74 };
#define CE_CAUSE_GONE "the image can no longer be read: "
