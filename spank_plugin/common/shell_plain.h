/* The characters that mean nothing to a shell within a word. */
#pragma once

#define CE_SHELL_PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_:=,@%+-"
