/* Names that come from users. Needs no Slurm, so that tests can compile it alone. */

#ifndef INTERLEAVE_NAMES_H
#define INTERLEAVE_NAMES_H

#include <stdbool.h>

#define GROUP_NAME_MAX 63
#define GROUP_NAME_RULE \
	"1 to 63 characters: letters, digits, dot, underscore and dash, beginning with a letter or a digit"

/* The same rule as GROUP_NAME in client/core/names.py and group_name_ok in interleave_rules.lua. */
bool group_name_ok(const char *text);

/* True for `none`, in any case, as for Slurm's own options: no group, said explicitly. */
bool group_is_none(const char *text);

/* True for a count of GPUs: 1 to 9999, without a sign or leading zeros. */
bool gpu_count_ok(const char *text);

#endif
