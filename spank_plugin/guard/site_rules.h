/* The part of the site's configuration on this node that a start without Python reads. */
#pragma once

/* Return whether the configuration of this prefix, or of the system, may have a rule for images or mounts: it
 * contains the name of a rule, or cannot be read. container_engine/node/start/site_rules.py has the rules;
 * only it judges. */
int ce_site_may_rule(const char *prefix);
