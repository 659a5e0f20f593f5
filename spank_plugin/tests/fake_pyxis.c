/* Another plugin, which has pyxis's name and nothing else. */
extern const char plugin_name[];
const char plugin_name[] = "pyxis";
