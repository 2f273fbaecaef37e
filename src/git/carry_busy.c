/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Branches that the host's git is going to set or to check out again although no HEAD names them: while a rebase or a
 * bisect is under way HEAD is detached, and files of git's tell where it ends. There is no command that lists them.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/path.h"
#include "git/carry.h"
#include "git/carry_names.h"

enum { HELD_BYTES_MAX = 16 << 20 };

static bool is_not_there(int error)
{
        return error == ENOENT || error == ENOTDIR;
}

/* Lines of which some are names: of references, or, in BISECT_START, of a branch for short. */
static void hold_lines(struct pv_carry *c, char *text, const char *prefix)
{
        for (char *line; (line = strsep(&text, "\n"));) {
                pv_auto_free char *name = pv_strf("%s%s", pv_str_has_prefix(line, "refs/") ? "" : prefix, line);
                if (pv_str_has_prefix(name, "refs/"))
                        pv_strv_add(&c->held, name);
        }
}

/* What cannot be read might name any branch. */
static int hold_those_of(struct pv_carry *c, const char *git_dir, struct pv_err *err)
{
        static const struct {
                const char *file, *prefix;
        } place[] = {
                { "rebase-merge/head-name", "" },
                { "rebase-merge/update-refs", "" },
                { "rebase-apply/head-name", "" },
                { "BISECT_START", PV_HEADS },
        };
        pv_auto_fd dir = open(git_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return is_not_there(errno) ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "%s", git_dir);
        for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
                struct pv_err failed = PV_ERR_INIT;
                pv_auto_free char *text = NULL;
                size_t len;
                if (pv_file_read_at(dir, place[i].file, HELD_BYTES_MAX, &text, &len, &failed) == 0)
                        hold_lines(c, text, place[i].prefix);
                else if (!is_not_there(failed.sys)) {
                        *err = failed;
                        return pv_err_wrap(err, "%s", git_dir);
                }
        }
        return 0;
}

int pv_carry_read_held(struct pv_carry *c, struct pv_err *err)
{
        pv_auto_free char *path = pv_path_join(c->host.common_dir, "worktrees");
        pv_strv_fini(&c->held);
        if (hold_those_of(c, c->host.common_dir, err) < 0 || hold_those_of(c, c->host.git_dir, err) < 0)
                return -1;
        pv_auto_dir d = opendir(path);
        if (!d)
                return is_not_there(errno) ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "%s", path);
        for (struct dirent *e; (e = readdir(d));) {
                pv_auto_free char *linked = pv_path_join(path, e->d_name);
                if (e->d_name[0] != '.' && hold_those_of(c, linked, err) < 0)
                        return -1;
        }
        return 0;
}
