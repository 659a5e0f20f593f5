"""Expected outcome of each published file, written by hand, and the environment for it.

- launches: validates, renders, plans
- base: valid, renders, names no image, so that a launch refuses it
- warned: besides, has the warnings in the text beside the file
- refused: has the errors in the text beside the file
"""

OUTCOMES = {
    "001": "base warned",  # the configuration of another program in front of [annotations]
    "002": "launches",
    "004": "launches",
    "005": "launches",
    "007": "launches",
    "008": "launches",
    "010": "launches",
    "011": "launches",
    "013": "launches",
    "014": "launches",  # a colon in the name of the image's directory
    "016": "launches",
    "017": "launches",
    "019": "launches",
    "020": "launches",
    "022": "launches warned",  # {{username}}
    "023": "launches",
    "025": "launches",
    "026": "launches",
    "028": "launches",
    "029": "launches",
    "031": "launches warned",  # {arch}
    "032": "launches warned",  # {arch}
    "034": "launches",
    "035": "launches",
    "037": "refused",  # [...]
    "038": "launches",
    "040": "launches",
    "041": "launches",
    "043": "launches",
    "044": "refused",  # a comma is missing
    "046": "base",
    "047": "refused",  # a shell session
    "049": "launches",
    "050": "base",
    "052": "launches",  # base_environment as a string
    "053": "launches",  # base_environment as an array
    "055": "base",
    "056": "base warned",  # /path/to/
    "058": "launches",
    "059": "base",
    "061": "launches",
    "062": "base",
    "064": "base",
    "065": "refused",  # a table that dotted keys have begun
    "067": "launches",
    "068": "launches",
    "070": "launches",
    "071": "refused",  # a shell session
    "073": "launches",
    "074": "launches",
    "076": "launches",
    "077": "launches warned",  # {arch}
    "079": "launches warned",  # <project_path>
    "080": "refused",  # shell commands
    "082": "launches",
    "083": "launches",
    "085": "launches",
    "086": "launches",
    "088": "launches",  # a base named by two variables
    "089": "launches",
    "091": "launches",
    "092": "refused",  # nothing but <IMAGE> and <WORKDIR>
    "094": "launches",
    "095": "launches",
    "097": "launches",
    "098": "launches warned",  # <USER>, <username>
    "100": "launches warned",  # hooks.… without com.
    "101": "launches warned",  # USER as a directory
    "103": "launches",
    "104": "launches",
    "106": "refused",  # a command substitution
    "107": "launches warned",  # <username>
    "109": "base",
    "110": "base",
    "112": "launches warned",  # [your_username]
    "113": "launches",  # a colon in the name of the image's directory
    "115": "launches",
    "116": "launches",
    "118": "launches",
    "119": "launches",
    "121": "launches",
    "122": "launches warned",  # the host's LD_LIBRARY_PATH
    "124": "launches",
    "125": "launches warned",  # the host's LD_LIBRARY_PATH
    "127": "launches",
    "128": "launches warned",  # the host's LD_LIBRARY_PATH
    "130": "launches",
    "131": "launches",
    "133": "base",
    "134": "base",
    "136": "launches warned",  # a path without ./, which is a name in a registry
    "137": "launches",
}
