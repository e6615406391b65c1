/* In slurmd: a mistake in plugstack.conf is best seen when the node starts. */

#include "interleave.h"

int slurmd_init(int ac, char **av)
{
	struct args args;

	args_parse(&args, ac, av);
	return (0);
}
