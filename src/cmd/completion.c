/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor completion: the script for a shell, from where the installation keeps it. */
#include <fcntl.h>
#include <unistd.h>
#include "base/file.h"
#include "base/place.h"
#include "base/str.h"
#include "cmd/command.h"

#define SCRIPT_MAX (1U << 20)

/* Relative to bin/, to libexec/pvisor/, to the build directory. */
#define PLACES(installed, built)                                             \
        {                                                                    \
                "../share/" installed, "../../share/" installed, built, NULL \
        }

static const struct {
        const char *shell;
        const char *places[4];
} scripts[] = {
        { "bash", PLACES("bash-completion/completions/pvisor.bash", "pvisor.bash") },
        { "zsh", PLACES("zsh/site-functions/_pvisor", "_pvisor") },
        { "fish", PLACES("fish/vendor_completions.d/pvisor.fish", "pvisor.fish") },
};

static int show(const char *const *places, struct pv_err *err)
{
        pv_auto_free char *path = NULL, *text = NULL;
        size_t len = 0;
        if (pv_place_find(places, &path, err) < 0)
                return -1;
        pv_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", path);
        if (pv_fd_read_all(fd, SCRIPT_MAX, path, &text, &len, err) < 0)
                return -1;
        return pv_fd_write_all(STDOUT_FILENO, text, len, "stdout", err);
}

static int run_completion(const void *options, const struct pv_args *args, struct pv_err *err)
{
        for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
                if (pv_streq(scripts[i].shell, args->words[0]))
                        return show(scripts[i].places, err);
        return pv_err_set(err, PV_ERR_USAGE, 0, "completion: not bash, zsh or fish: %s", args->words[0]);
}

static const char *const examples[] = {
        ". <(pvisor completion bash)",
        "Completion in this shell.",
        "pvisor completion fish > ~/.config/fish/completions/pvisor.fish",
        "Completion in every new one.",
        NULL,
};

const struct pv_command pv_cmd_completion = {
        .name = "completion",
        .usage = "bash|zsh|fish",
        .about = "Prints the completion script. An installed pVisor has it where the shells look for it already.",
        .min_words = 1,
        .max_words = 1,
        .words = PV_COMPLETE_SHELL,
        .examples = examples,
        .run = run_completion,
};
