/* SPDX-License-Identifier: Apache-2.0 */
/* libexec/pvisor/pvisor-diff: `pvisor diff`, which alone needs libgit2. */
#include "cmd/command.h"

static const struct pv_command *const commands[] = { PV_COMMANDS_DIFF(PV_COMMAND_POINTER) NULL };

int main(int argc, char **argv)
{
        return pv_dispatch(commands, argc, argv);
}
