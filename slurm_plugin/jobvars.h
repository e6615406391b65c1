/* Variables that an agent's environment file gives to one job and that mean nothing in another. */

#ifndef INTERLEAVE_JOBVARS_H
#define INTERLEAVE_JOBVARS_H

extern const char *const jobvars[]; /* ends with NULL */

#endif
