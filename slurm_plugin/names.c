#include "names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Not isalnum(): what that allows depends on the user's locale. */
#define DIGITS "0123456789"
#define ALNUM "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" DIGITS
#define DAY_S 86400UL
#define PERCENT_MAX 1000

bool group_name_ok(const char *text)
{
	size_t length = strlen(text);

	return (length >= 1 && length <= GROUP_NAME_MAX && strspn(text, ALNUM) >= 1 &&
	        strspn(text, ALNUM "._-") == length);
}

/* True for `none`, in any case, as for Slurm's own options. */
static bool is_none(const char *text)
{
	return (strcasecmp(text, "none") == 0);
}

bool name_read(const char *text, char *value)
{
	value[0] = '\0';
	if (is_none(text))
		return (true);
	if (!group_name_ok(text))
		return (false);
	strcpy(value, text);
	return (true);
}

bool gpu_count_read(const char *text, char *value)
{
	size_t length = strlen(text);

	value[0] = '\0';
	if (length < 1 || length > 4 || text[0] == '0' || strspn(text, DIGITS) != length)
		return (false);
	strcpy(value, text);
	return (true);
}

bool backend_read(const char *text, char *value)
{
	size_t length = 0;

	value[0] = '\0';
	if (is_none(text))
		return (true);
	for (const char *rest = text;; rest++) {
		size_t word = strspn(rest, ALNUM "_");

		if (word == 0 || length + word > VALUE_MAX)
			goto fail;
		memcpy(value + length, rest, word);
		length += word;
		rest += word;
		if (*rest == '\0')
			break;
		if (*rest != ',' && *rest != '+')
			goto fail;
		value[length++] = '+';
	}
	value[length] = '\0';
	return (true);

fail:
	value[0] = '\0';
	return (false);
}

bool percent_read(const char *text, char *value)
{
	size_t digits = strspn(text, DIGITS);

	value[0] = '\0';
	if (is_none(text))
		return (true);
	if (digits < 1 || digits > 4 || (text[digits] != '\0' && strcmp(text + digits, "%") != 0))
		return (false);
	if (strtoul(text, NULL, 10) > PERCENT_MAX)
		return (false);
	snprintf(value, VALUE_MAX + 1, "%lu", strtoul(text, NULL, 10));
	return (true);
}

static bool number_read(const char **text, unsigned long *number)
{
	size_t digits = strspn(*text, DIGITS);

	if (digits < 1 || digits > 8)
		return (false);
	*number = strtoul(*text, NULL, 10);
	*text += digits;
	return (true);
}

/* minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds */
static unsigned long seconds_of(const char *text)
{
	unsigned long days = 0, part[3] = {0, 0, 0};
	bool has_days = strchr(text, '-') != NULL;
	size_t count = 0;

	if (has_days && (!number_read(&text, &days) || *text++ != '-'))
		return (0);
	do {
		if (count == 3 || !number_read(&text, &part[count++]))
			return (0);
	} while (*text++ == ':');
	if (text[-1] != '\0')
		return (0);
	if (has_days || count == 3)
		return (days * DAY_S + part[0] * 3600 + part[1] * 60 + part[2]);
	return (part[0] * 60 + part[1]);
}

bool wait_read(const char *text, char *value)
{
	unsigned long seconds;

	value[0] = '\0';
	if (strcasecmp(text, "unlimited") == 0 || strcasecmp(text, "infinite") == 0)
		return (true);
	seconds = seconds_of(text);
	if (seconds < 1 || seconds > 366 * DAY_S)
		return (false);
	snprintf(value, VALUE_MAX + 1, "%lu", seconds);
	return (true);
}
