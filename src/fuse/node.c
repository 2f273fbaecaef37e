/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"

#define TABLE_LEAST 1024
#define INO_GOLDEN  0x9e3779b97f4a7c15ULL

static uint64_t hash_bytes(uint64_t h, const char *s)
{
        h = pv_hash_text(h, s);
        return h ^ h >> 29;
}

static uint64_t hash_name(const struct pv_fuse_node *dir, const char *name)
{
        return hash_bytes(PV_HASH_START ^ (uint64_t)(uintptr_t)dir, name);
}

static uint64_t hash_number(uint64_t n)
{
        n *= INO_GOLDEN;
        return n ^ n >> 32;
}

/* ---- names ---- */

static void grow_names(struct pv_fuse_fs *fs)
{
        size_t cap = fs->names_cap * 2;
        struct pv_fuse_name **to = pv_calloc(cap, sizeof(struct pv_fuse_name *));
        for (size_t i = 0; i < fs->names_cap; i++)
                for (struct pv_fuse_name *n = fs->names[i], *next; n; n = next) {
                        next = n->next_hash;
                        n->next_hash = to[n->hash & (cap - 1)];
                        to[n->hash & (cap - 1)] = n;
                }
        free(fs->names);
        fs->names = to;
        fs->names_cap = cap;
}

static struct pv_fuse_name **find_name(struct pv_fuse_fs *fs, const struct pv_fuse_node *dir, const char *name)
{
        uint64_t hash = hash_name(dir, name);
        struct pv_fuse_name **at = &fs->names[hash & (fs->names_cap - 1)];
        while (*at && ((*at)->hash != hash || (*at)->dir != dir || !pv_streq((*at)->text, name)))
                at = &(*at)->next_hash;
        return at;
}

struct pv_fuse_node *pv_fuse_name_find(struct pv_fuse_fs *fs, struct pv_fuse_node *dir, const char *name)
{
        struct pv_fuse_name *n = *find_name(fs, dir, name);
        return n ? n->node : NULL;
}

void pv_fuse_name_add(struct pv_fuse_fs *fs, struct pv_fuse_node *dir, const char *name, struct pv_fuse_node *node)
{
        size_t len = strlen(name);
        if (++fs->n_names > fs->names_cap)
                grow_names(fs);
        struct pv_fuse_name **at = find_name(fs, dir, name);
        struct pv_fuse_name *n = pv_calloc(1, sizeof *n + len + 1);
        *n = (struct pv_fuse_name){ .dir = dir, .node = node, .hash = hash_name(dir, name), .next_alias = node->names };
        memcpy(n->text, name, len + 1);
        *at = n;
        node->names = n;
        dir->n_names_in++;
}

/* ---- nodes ---- */

static struct pv_fuse_node **upper_slot(struct pv_fuse_fs *fs, uint64_t ino)
{
        return &fs->uppers[hash_number(ino) & (fs->uppers_cap - 1)];
}

static void grow_uppers(struct pv_fuse_fs *fs)
{
        struct pv_fuse_node **from = fs->uppers;
        size_t n = fs->uppers_cap;
        fs->uppers_cap *= 2;
        fs->uppers = pv_calloc(fs->uppers_cap, sizeof(struct pv_fuse_node *));
        for (size_t i = 0; i < n; i++)
                for (struct pv_fuse_node *node = from[i], *next; node; node = next) {
                        next = node->next_upper;
                        struct pv_fuse_node **slot = upper_slot(fs, node->real_ino);
                        node->next_upper = *slot;
                        *slot = node;
                }
        free(from);
}

struct pv_fuse_node *pv_fuse_upper_find(struct pv_fuse_fs *fs, uint64_t ino)
{
        struct pv_fuse_node *n = *upper_slot(fs, ino);
        while (n && n->real_ino != ino)
                n = n->next_upper;
        return n;
}

void pv_fuse_upper_add(struct pv_fuse_fs *fs, struct pv_fuse_node *n, uint64_t ino)
{
        if (++fs->n_uppers > fs->uppers_cap)
                grow_uppers(fs);
        struct pv_fuse_node **slot = upper_slot(fs, ino);
        n->upper = true;
        n->real_ino = ino;
        n->next_upper = *slot;
        *slot = n;
}

static void remove_upper(struct pv_fuse_fs *fs, struct pv_fuse_node *n)
{
        struct pv_fuse_node **at = upper_slot(fs, n->real_ino);
        while (*at && *at != n)
                at = &(*at)->next_upper;
        if (*at) {
                *at = n->next_upper;
                fs->n_uppers--;
        }
}

struct pv_fuse_node *pv_fuse_node_new(mode_t type)
{
        struct pv_fuse_node *n = pv_calloc(1, sizeof *n);
        n->type = type & S_IFMT;
        n->fd = -1;
        return n;
}

/* Out of the table; the node's own list is the caller's matter. */
static void unhash(struct pv_fuse_fs *fs, struct pv_fuse_name *name)
{
        struct pv_fuse_name **at = &fs->names[name->hash & (fs->names_cap - 1)];
        while (*at && *at != name)
                at = &(*at)->next_hash;
        if (*at)
                *at = name->next_hash;
        fs->n_names--;
        name->dir->n_names_in--;
}

static void free_if_unused(struct pv_fuse_fs *fs, struct pv_fuse_node *n)
{
        if (n == &fs->root_node || n->lookups || n->n_names_in || n->handles)
                return;
        struct pv_fuse_name *names = n->names;
        for (struct pv_fuse_name *name = names; name; name = name->next_alias)
                unhash(fs, name);
        if (S_ISDIR(n->type))
                pv_fuse_unwatch(fs, n);
        else if (n->upper)
                remove_upper(fs, n);
        pv_fd_closep(&n->fd);
        free(n);
        for (struct pv_fuse_name *next; names; names = next) { /* their directories may have waited for this */
                struct pv_fuse_node *dir = names->dir;
                next = names->next_alias;
                free(names);
                free_if_unused(fs, dir);
        }
}

void pv_fuse_name_remove(struct pv_fuse_fs *fs, struct pv_fuse_node *dir, const char *text)
{
        struct pv_fuse_name *name = *find_name(fs, dir, text);
        if (!name)
                return;
        struct pv_fuse_node *n = name->node;
        struct pv_fuse_name **alias = &n->names;
        while (*alias && *alias != name)
                alias = &(*alias)->next_alias;
        if (*alias)
                *alias = name->next_alias;
        unhash(fs, name);
        free(name); /* dir is in use by whoever asked */
        free_if_unused(fs, n);
}

void pv_fuse_node_forget(struct pv_fuse_fs *fs, struct pv_fuse_node *n, uint64_t lookups)
{
        n->lookups -= lookups < n->lookups ? lookups : n->lookups;
        free_if_unused(fs, n);
}

int pv_fuse_nodes_init(struct pv_fuse_fs *fs)
{
        fs->names_cap = fs->uppers_cap = TABLE_LEAST;
        fs->names = pv_calloc(fs->names_cap, sizeof(struct pv_fuse_name *));
        fs->uppers = pv_calloc(fs->uppers_cap, sizeof(struct pv_fuse_node *));
        fs->root_node = (struct pv_fuse_node){
                .lookups = 1, .type = S_IFDIR, .upper = fs->writable, .bottom = fs->n_layers - 1, .fd = -1
        };
        struct stat st;
        if (fstat(fs->layer[fs->n_layers - 1], &st) < 0)
                return -1;
        fs->root_node.ino = pv_fuse_shown_ino(fs, &st, false);
        return 0;
}

int pv_fuse_node_path(struct pv_fuse_fs *fs, const struct pv_fuse_node *n, struct pv_str *out)
{
        size_t len = 0;
        for (const struct pv_fuse_node *at = n; at != &fs->root_node; at = at->names->dir) {
                if (!at->names) {
                        errno = ENOENT;
                        return -1;
                }
                len += strlen(at->names->text) + 1;
        }
        out->len = 0;
        if (len == 0) {
                pv_str_put(out, "");
                return 0;
        }
        if (out->cap < len + 1)
                out->s = pv_realloc(out->s, out->cap = len + 64, 1);
        out->len = --len;
        out->s[len] = '\0';
        for (const struct pv_fuse_node *at = n; at != &fs->root_node; at = at->names->dir) {
                size_t part = strlen(at->names->text);
                len -= part;
                memcpy(out->s + len, at->names->text, part);
                if (len > 0)
                        out->s[--len] = '/';
        }
        return 0;
}

static bool is_below(const struct pv_fuse_fs *fs, const struct pv_fuse_node *n, const struct pv_fuse_node *dir)
{
        for (; n != dir; n = n->names->dir)
                if (n == &fs->root_node || !n->names)
                        return false;
        return true;
}

void pv_fuse_nodes_complete(struct pv_fuse_fs *fs, struct pv_fuse_node *dir)
{
        dir->upper = true;
        dir->bottom = 0;
        for (size_t i = 0; i < fs->names_cap; i++)
                for (struct pv_fuse_name *n = fs->names[i]; n; n = n->next_hash)
                        if (S_ISDIR(n->node->type) && is_below(fs, n->node, dir)) {
                                n->node->upper = true;
                                n->node->bottom = 0;
                        }
}

/* ---- what is kept for the run ---- */

static struct pv_fuse_kept *table_slot(const struct pv_fuse_table *t, uint64_t key)
{
        size_t i = hash_number(key) & (t->cap - 1);
        while (t->slot[i].key && t->slot[i].key != key)
                i = (i + 1) & (t->cap - 1);
        return &t->slot[i];
}

struct pv_fuse_kept *pv_fuse_table_get(const struct pv_fuse_table *t, uint64_t key)
{
        struct pv_fuse_kept *k = t->cap && key ? table_slot(t, key) : NULL;
        return k && k->key ? k : NULL;
}

void pv_fuse_table_put(struct pv_fuse_table *t, uint64_t key, uint64_t value)
{
        if (!key)
                return;
        if (2 * (t->n + 1) > t->cap) {
                struct pv_fuse_table old = *t;
                t->cap = old.cap ? old.cap * 2 : TABLE_LEAST;
                t->slot = pv_calloc(t->cap, sizeof *t->slot);
                for (size_t i = 0; i < old.cap; i++)
                        if (old.slot[i].key)
                                *table_slot(t, old.slot[i].key) = old.slot[i];
                free(old.slot);
        }
        struct pv_fuse_kept *k = table_slot(t, key);
        t->n += k->key ? 0 : 1;
        k->key = key;
        k->value = value;
}

uint64_t pv_fuse_shown_ino(struct pv_fuse_fs *fs, const struct stat *st, bool upper)
{
        size_t i = 0;
        const struct pv_fuse_kept *k = upper ? pv_fuse_table_get(&fs->shown, st->st_ino) : NULL;
        if (k && k->value)
                return k->value;
        while (i < fs->n_devs && fs->dev[i] != st->st_dev)
                i++;
        if (i == fs->n_devs && i < sizeof fs->dev / sizeof *fs->dev)
                fs->dev[fs->n_devs++] = st->st_dev;
        return st->st_ino + i * INO_GOLDEN; /* of the host's own file system: its own numbers */
}

void pv_fuse_witness(struct pv_fuse_fs *fs, const char *path, uint64_t ino)
{
        uint64_t key = hash_bytes(0x84222325cbf29ce4ULL, path);
        struct pv_fuse_kept *k = pv_fuse_table_get(&fs->seen, key);
        if (!k)
                pv_fuse_table_put(&fs->seen, key, ino);
        else if (k->value != ino)
                k->moved = true;
}

uint64_t pv_fuse_testify(struct pv_fuse_fs *fs, const char *path)
{
        const struct pv_fuse_kept *k = pv_fuse_table_get(&fs->seen, hash_bytes(0x84222325cbf29ce4ULL, path));
        return k && !k->moved ? k->value : 0;
}
