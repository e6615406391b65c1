#include "names.h"

#include <string.h>
#include <strings.h>

/* Not isalnum(): what that allows depends on the user's locale. */
#define ALNUM "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

bool group_name_ok(const char *text)
{
	size_t length = strlen(text);

	return (length >= 1 && length <= GROUP_NAME_MAX && strspn(text, ALNUM) >= 1 &&
	        strspn(text, ALNUM "._-") == length);
}

bool group_is_none(const char *text)
{
	return (strcasecmp(text, "none") == 0);
}

bool gpu_count_ok(const char *text)
{
	size_t length = strlen(text);

	return (length >= 1 && length <= 4 && text[0] != '0' && strspn(text, "0123456789") == length);
}
