/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conflict check at the time of applying: is the target's path still its preimage? The same inode, unchanged by
 * its ctime, is. A file that was touched, or went and came back (a branch switched forth and back), has another ctime
 * or inode but the same bytes and metadata: the hash of the preimage proves it. What cannot be proved is a conflict.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/str.h"
#include "stage/change.h"

const char pv_change_no_directory[] = "a directory above it was removed or replaced on the host";
static const char why_appeared[] = "appeared on the host after the stage was taken";
static const char why_gone[] = "was deleted on the host after the stage was taken";
static const char why_type[] = "became something else on the host after the stage was taken";
static const char why_content[] = "was changed on the host after the stage was taken";
static const char why_metadata[] = "its mode, owner or attributes were changed on the host after the stage was taken";
static const char why_links[] = "got another hard link on the host after the stage was taken";
static const char why_unreadable[] = "cannot be looked at on the host";

static bool refuse(const char **why, const char *text)
{
        *why = text;
        return false;
}

static bool is_same_link(const struct pv_facts *a, const struct pv_facts *b)
{
        return a->link && b->link && pv_streq(a->link, b->link);
}

/* A regular file whose metadata are the preimage's, but not its inode or ctime. */
static bool check_content(int dirfd, const char *name, const struct pv_facts *pre, struct pv_facts *live,
                          const char **why)
{
        if (live->size != pre->size)
                return refuse(why, why_content);
        if (pre->size == 0)
                return true;
        if (!pre->hashed)
                return refuse(why, why_content);
        if (pv_facts_hash(dirfd, name, live) < 0)
                return refuse(why, why_unreadable);
        return memcmp(live->sha256, pre->sha256, sizeof pre->sha256) == 0 || refuse(why, why_content);
}

static bool check_facts(int dirfd, const char *name, const struct pv_facts *pre, struct pv_facts *live,
                        const char **why)
{
        if (!pv_facts_exist(pre))
                return !pv_facts_exist(live) || refuse(why, why_appeared);
        if (!pv_facts_exist(live))
                return refuse(why, why_gone);
        if ((pre->mode & S_IFMT) != (live->mode & S_IFMT))
                return refuse(why, why_type);
        if (!S_ISDIR(pre->mode) && pv_facts_same_inode_state(pre, live))
                return true;
        if (S_ISLNK(pre->mode) && !is_same_link(pre, live))
                return refuse(why, why_content);
        if (pv_facts_get_xattrs(dirfd, name, PV_FACTS_HOST, &live->xattrs) < 0)
                return refuse(why, why_unreadable);
        if (!pv_facts_same_metadata(pre, live))
                return refuse(why, why_metadata);
        if (!S_ISREG(pre->mode))
                return true;
        if (live->nlink > pre->nlink)
                return refuse(why, why_links);
        return check_content(dirfd, name, pre, live, why);
}

static bool check_at(int dirfd, const char *name, const struct pv_change *c, const char **why)
{
        pv_auto_arena text = { 0 };
        struct pv_facts live;
        if (pv_facts_get(dirfd, name, &text, &live) < 0)
                return refuse(why, why_unreadable);
        return check_facts(dirfd, name, &c->pre, &live, why);
}

const struct pv_change *pv_changes_find_maker(const struct pv_changes *all, const struct pv_change *c)
{
        pv_auto_free char *dir = pv_strdup(c->path);
        for (char *slash; (slash = strrchr(dir, '/'));) {
                *slash = '\0';
                const struct pv_change *above = pv_changes_find((struct pv_changes *)(uintptr_t)all, c->root, dir);
                if (above && S_ISDIR(above->now.mode) && !S_ISDIR(above->pre.mode))
                        return above;
        }
        return NULL;
}

/* all: NULL where only the path itself is asked about. */
static bool check(struct pv_stage *s, const struct pv_changes *all, const struct pv_change *c, const char **why)
{
        if (c->flags & (PV_CHANGE_SUSPECT | PV_CHANGE_BLOCKED))
                return refuse(why, c->why);
        struct pv_pathfd target = pv_stage_target(s, c->root);
        if (!*c->path)
                return check_at(target.fd, "", c, why);
        pv_auto_pathfd parent = PV_PATHFD_INIT;
        const char *name = NULL;
        if (pv_path_open_parent(target, c->path, &parent, &name) == 0)
                return check_at(parent.fd, name, c, why);
        if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
                return refuse(why, why_unreadable);
        if (all && !(c->pre.mode == 0 && pv_changes_find_maker(all, c)))
                return refuse(why, pv_change_no_directory);
        /* Where nothing was, nothing is: whatever stands above is a change of its own, or publishing will refuse. */
        return !pv_facts_exist(&c->pre) || refuse(why, why_gone);
}

bool pv_change_check(struct pv_stage *s, const struct pv_change *c, const char **why)
{
        return check(s, NULL, c, why);
}

bool pv_change_check_among(struct pv_stage *s, const struct pv_changes *all, const struct pv_change *c,
                           const char **why)
{
        return check(s, all, c, why);
}
