/* In sbatch and salloc. */

#include "interleave.h"

#include <errno.h> /* program_invocation_short_name */
#include <string.h>

/* SPANK does not say which of the two it is; the program's name does. */
static int program(void)
{
	return (strcmp(program_invocation_short_name, "salloc") == 0 ? SALLOC : SBATCH);
}

int allocator_init(spank_t sp, int ac, char **av)
{
	struct args args;

	if (args_parse(&args, ac, av) < 0)
		return (-1);
	submit_forget_parent(sp);
	submit_use_variables(program());
	return (option_register(sp));
}
