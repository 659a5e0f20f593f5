/* Another plugin, of which only the name matters. */
extern const char plugin_name[];
const char plugin_name[] = "pyxis";
