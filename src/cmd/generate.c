/* SPDX-License-Identifier: Apache-2.0 */
/* Runs while pVisor is built, and is not installed: writes a manual page or a completion script to stdout. */
#include <stdio.h>
#include <unistd.h>
#include "base/log.h"
#include "base/str.h"
#include "cmd/completion_scripts.h"
#include "cmd/man.h"

#define ROW(executable, id, summary) &pv_cmd_##id,

static const struct pv_command *const commands[] = { PV_COMMANDS(ROW) NULL };

static const struct {
        const char *shell;
        void (*write)(struct pv_str *out, const struct pv_command *const *commands);
} scripts[] = {
        { "bash", pv_completion_bash },
        { "zsh", pv_completion_zsh },
        { "fish", pv_completion_fish },
};

static int generate(const char *what, struct pv_str *out)
{
        for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
                if (pv_streq(scripts[i].shell, what)) {
                        scripts[i].write(out, commands);
                        return 0;
                }
        }
        if (pv_streq(what, "pvisor")) {
                pv_man_overview(out);
                return 0;
        }
        for (size_t i = 0; commands[i]; i++) {
                if (pv_streq(commands[i]->name, what)) {
                        pv_man_command(out, commands[i]);
                        return 0;
                }
        }
        return -1;
}

int main(int argc, char **argv)
{
        pv_auto_str out = { 0 };
        struct pv_err err = PV_ERR_INIT;
        if (argc != 2 || generate(argv[1], &out) < 0)
                (void)pv_err_set(&err, PV_ERR_USAGE, 0, "generate: pvisor, a command's name, bash, zsh or fish");
        else if (pv_fd_write_all(STDOUT_FILENO, out.s, out.len, "stdout", &err) == 0)
                return 0;
        pv_log_err(&err);
        return 1;
}
