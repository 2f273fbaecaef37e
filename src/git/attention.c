/* SPDX-License-Identifier: Apache-2.0 */
#include "git/attention.h"

#include <assert.h>

static const struct pv_attention_info infos[PV_ATTENTIONS] = {
        [PV_ATTENTION_GIT_HOOK] = { "git-hook", "git hook", "git runs it at the next commit, merge or checkout", true },
        [PV_ATTENTION_GIT_CONFIG] = { "git-config", "git configuration",
                                      "can name programs that any git command on the host runs", true },
        [PV_ATTENTION_GIT_REPLACED] = { "git-replaced", "git directory replaced",
                                        "git on the host would use another repository", true },
        [PV_ATTENTION_NESTED_REPO] = { "nested-repository", "new git repository",
                                       "its configuration and hooks count for git below it", true },
        [PV_ATTENTION_ENV] = { "environment", "environment file", "loaded when a shell enters the directory", true },
        [PV_ATTENTION_EDITOR] = { "editor", "editor tasks and settings",
                                  "the editor runs them when the directory opens", true },
        [PV_ATTENTION_AGENT] = { "agent", "agent settings", "the next agent on the host loads them", true },
        [PV_ATTENTION_SHELL] = { "startup", "start-up file", "runs when a shell or session starts", true },
        [PV_ATTENTION_SETUID] = { "setuid", "set-user-ID, set-group-ID or capabilities", "runs with others' rights",
                                  false },
        [PV_ATTENTION_LINK_LEAVES] = { "link-leaves", "link out of the workspace", "leads to other files of the host",
                                       false },
        [PV_ATTENTION_GUARD_REMOVED] = { "guard-removed", "hook or setting deleted",
                                         "what it checked or forbade is checked no more", false },
        [PV_ATTENTION_CI] = { "ci", "CI configuration", "runs with the project's secrets after a push", false },
        [PV_ATTENTION_PACKAGE_SCRIPTS] = { "package-scripts", "package scripts",
                                           "run at the next install, test or start", false },
        [PV_ATTENTION_BUILD] = { "build", "build script", "runs at the next build or test", false },
        [PV_ATTENTION_TOOL_CONFIG] = { "tool-config", "tool configuration",
                                       "can name programs or sources that a tool uses", false },
        [PV_ATTENTION_GIT_SETTING] = { "git-setting", "git attributes or modules",
                                       "steer what git fetches, filters or ignores", false },
        [PV_ATTENTION_EXECUTABLE] = { "executable", "new executable", "can be run as a program", false },
        [PV_ATTENTION_LOCKFILE] = { "lockfile", "lockfile", "decides which code the next install fetches", false },
        [PV_ATTENTION_SPECIAL_FILE] = { "special-file", "special file", "a pipe, socket or device, not a file", false },
        [PV_ATTENTION_SPLIT_LINK] = { "split-link", "split hard link",
                                      "its other names on the host keep the old content", false },
        [PV_ATTENTION_HOLES_FILLED] = { "holes-filled", "holes filled",
                                        "takes far more of the disk than the host's sparse file", false },
        [PV_ATTENTION_METADATA_LOST] = { "metadata-lost", "owner or attributes",
                                         "cannot be kept when applied by this user", false },
};
static_assert(PV_ATTENTIONS <= 64, "reasons are bits of a uint64_t");

const struct pv_attention_info *pv_attention_info(enum pv_attention a)
{
        return &infos[a];
}

bool pv_attention_host_runs(uint64_t reasons)
{
        for (unsigned a = 0; a < PV_ATTENTIONS; a++)
                if (infos[a].host_runs && (reasons & PV_ATTENTION_BIT(a)))
                        return true;
        return false;
}

enum pv_attention pv_attention_first(uint64_t reasons)
{
        return (enum pv_attention)__builtin_ctzll(reasons);
}
