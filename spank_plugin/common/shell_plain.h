/* The characters that mean nothing to a shell within a word. */
#ifndef CE_SHELL_PLAIN_H
#define CE_SHELL_PLAIN_H

#define CE_SHELL_PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_:=,@%+-"

#endif
