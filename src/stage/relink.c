/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/relink.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/str.h"
#include "stage/facts.h"

/* Directories are open down to the one that is read: further down nothing is looked for. */
#define DEPTH_MAX 128

struct pv_other_name {
        uint64_t ino;
        char *path; /* owned; NULL: none was found */
        uint32_t root;
};

void pv_relink_fini(struct pv_relink *r)
{
        for (size_t i = 0; i < r->n; i++)
                free(r->name[i].path);
        free(r->name);
        *r = (struct pv_relink){ 0 };
}

static int compare(const void *a, const void *b)
{
        const struct pv_other_name *x = a, *y = b;
        if (x->root != y->root)
                return x->root < y->root ? -1 : 1;
        return x->ino == y->ino ? 0 : x->ino < y->ino ? -1 : 1;
}

static struct pv_other_name *find(struct pv_relink *r, uint32_t root, uint64_t ino)
{
        const struct pv_other_name key = { .ino = ino, .root = root };
        return r->n ? bsearch(&key, r->name, r->n, sizeof key, compare) : NULL;
}

static void note_wanted(struct pv_relink *r)
{
        const struct pv_plan_list *p = r->e->plan;
        r->name = pv_calloc(p->n + 1, sizeof *r->name);
        for (size_t i = 0; i < p->n; i++)
                if (p->item[i].original)
                        r->name[r->n++] = (struct pv_other_name){ .ino = p->item[i].original, .root = p->item[i].root };
        if (r->n > 1)
                qsort(r->name, r->n, sizeof *r->name, compare);
}

struct search {
        struct pv_relink *r;
        struct pv_str path;
        uint32_t root;
        dev_t dev;
        unsigned depth;
};

static void search_dir(struct search *s, int parent, const char *name)
{
        struct stat st;
        int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        pv_auto_dir d = fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == s->dev ? fdopendir(fd) : NULL;
        if (!d && fd >= 0)
                (void)close(fd);
        for (struct dirent *e; d && (e = readdir(d));) {
                if (pv_streq(e->d_name, ".") || pv_streq(e->d_name, ".."))
                        continue;
                size_t len = s->path.len;
                pv_str_putf(&s->path, "%s%s", len ? "/" : "", e->d_name);
                struct pv_other_name *wanted = e->d_type == DT_DIR ? NULL : find(s->r, s->root, e->d_ino);
                if (wanted && !wanted->path)
                        wanted->path = pv_strdup(s->path.s);
                if ((e->d_type == DT_DIR || e->d_type == DT_UNKNOWN) && s->depth < DEPTH_MAX) {
                        s->depth++;
                        search_dir(s, fd, e->d_name);
                        s->depth--;
                }
                s->path.len = len;
        }
}

static void look_for_names(struct pv_relink *r)
{
        note_wanted(r);
        for (size_t i = 0; i < r->n; i++) {
                struct stat st;
                struct pv_pathfd top = pv_stage_target(r->e->s, r->name[i].root);
                if ((i > 0 && r->name[i].root == r->name[i - 1].root) || fstat(top.fd, &st) < 0)
                        continue;
                struct search s = { .r = r, .root = r->name[i].root, .dev = st.st_dev };
                search_dir(&s, top.fd, ".");
                pv_str_fini(&s.path);
        }
        r->looked = true;
}

/* Whatever differs, even by what the host changed since, keeps the two apart. */
static bool is_same(int a, const char *a_name, int b, const char *b_name, uint64_t ino)
{
        pv_auto_arena text = { 0 };
        struct pv_facts x, y;
        if (pv_facts_get(a, a_name, &text, &x) < 0 || pv_facts_get(b, b_name, &text, &y) < 0 || x.mode == 0 ||
            S_ISDIR(x.mode) || x.ino != ino || x.size != y.size || x.mtime.tv_sec != y.mtime.tv_sec ||
            x.mtime.tv_nsec != y.mtime.tv_nsec || pv_facts_get_xattrs(a, a_name, PV_FACTS_HOST, &x.xattrs) < 0 ||
            pv_facts_get_xattrs(b, b_name, PV_FACTS_HOST, &y.xattrs) < 0 || !pv_facts_same_metadata(&x, &y))
                return false;
        if (S_ISLNK(x.mode))
                return pv_streq(x.link, y.link);
        if (!S_ISREG(x.mode))
                return true;
        return pv_facts_hash(a, a_name, &x) == 0 && pv_facts_hash(b, b_name, &y) == 0 &&
               memcmp(x.sha256, y.sha256, sizeof x.sha256) == 0;
}

bool pv_relink(struct pv_relink *r, const struct pv_item *it, int copy, const char *copy_name, int to, const char *name)
{
        if (!it->original)
                return false;
        if (!r->looked)
                look_for_names(r);
        const struct pv_other_name *other = find(r, it->root, it->original);
        pv_auto_pathfd dir = PV_PATHFD_INIT;
        const char *last = NULL;
        return other && other->path &&
               pv_path_open_parent(pv_stage_target(r->e->s, it->root), other->path, &dir, &last) == 0 &&
               is_same(dir.fd, last, copy, copy_name, it->original) && linkat(dir.fd, last, to, name, 0) == 0;
}
