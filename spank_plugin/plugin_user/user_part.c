#include "plugin/user_part.h"

#include "submit.h"
#include "task.h"

const struct ce_user_part ce_user_part = { CE_VERSION,	   ce_submit_begin, ce_submit,
					   ce_submit_mark, ce_submit_end,   ce_task_begin };
