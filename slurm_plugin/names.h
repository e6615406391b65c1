/* Names that come from users. Needs no Slurm, so that tests can compile it alone. */

#ifndef INTERLEAVE_NAMES_H
#define INTERLEAVE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#define GROUP_NAME_MAX 63
#define GROUP_NAME_RULE \
	"1 to 63 characters: letters, digits, dot, underscore and dash, beginning with a letter or a digit"

/* The same rule as GROUP_NAME in client/core/names.py and group_name_ok in interleave_rules.lua. */
bool group_name_ok(const char *text);

/*
 * What an option was given becomes the value that the job carries. Each returns false for what is not allowed, and
 * *value* has room for VALUE_MAX characters and the end. Empty values say that there is none.
 */
#define VALUE_MAX 127

/* A group's or a role's name, or `none`. */
bool name_read(const char *text, char *value);

/* A count of GPUs: 1 to 9999, without a sign or leading zeros. */
bool gpu_count_read(const char *text, char *value);

/* Backends as in `app_channel,cuda`, which becomes `app_channel+cuda`, or `none`. */
bool backend_read(const char *text, char *value);

/* Whole percent, 0 to 1000, with or without the sign; or `none`. */
bool percent_read(const char *text, char *value);

/* A time in one of Slurm's forms, which becomes seconds, 1 to 31622400; or `unlimited` or `infinite`: none. */
bool wait_read(const char *text, char *value);

#endif
