/* SPDX-License-Identifier: Apache-2.0 */
/* bin/pvisor: what has to start fast, and the door to the rest (libexec/pvisor/). */
#include "cmd/command.h"

static const struct pv_command *const commands[] = { PV_COMMANDS_MAIN(PV_COMMAND_POINTER) NULL };

int main(int argc, char **argv)
{
        return pv_dispatch(commands, argc, argv);
}
