/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/prune_caches.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cmd/jobs.h"
#include "job/kept.h"

struct pruning {
        const struct pv_prune_caches *o;
        uint64_t most, total;
        json_t *removed, *kept;
        struct pv_str text;
        uint64_t bytes;
};

static void pruning_fini(struct pruning *p)
{
        json_decref(p->removed);
        json_decref(p->kept);
        pv_str_fini(&p->text);
}

static bool is_old(const struct pruning *p, const struct pv_kept_cache *c)
{
        struct timespec now = pv_clock_now();
        return p->o->older && now.tv_sec > c->used.tv_sec &&
               (uint64_t)(now.tv_sec - c->used.tv_sec) * 1000 > p->o->older;
}

static bool may_go(const struct pruning *p, const struct pv_kept_cache *c)
{
        if (*p->o->most && p->total > p->most)
                return true;
        return p->o->older ? is_old(p, c) : !*p->o->most;
}

static json_t *tell(const struct pv_kept_cache *c)
{
        return json_pack("{s:o, s:o, s:I}", "workspace", pv_json_bytes(c->workspace), "directory",
                         pv_json_bytes(c->path), "size_bytes", (json_int_t)c->bytes);
}

static void prune_one(struct pruning *p, const struct pv_kept_cache *c)
{
        struct pv_err why = PV_ERR_INIT;
        bool go = !c->in_use && may_go(p, c);
        if (go && !p->o->dry_run && pv_kept_cache_remove(c, &why) < 0) {
                if (why.kind != PV_ERR_BUSY)
                        pv_log_warn("%s", why.msg);
                go = false;
        }
        (void)json_array_append_new(go ? p->removed : p->kept, tell(c));
        if (!go)
                return;
        p->total -= c->bytes;
        p->bytes += c->bytes;
        pv_str_put(&p->text, p->o->dry_run ? "would remove the caches of " : "removed the caches of ");
        pv_str_put_safe(&p->text, c->workspace ? c->workspace : c->path);
        pv_str_put(&p->text, "  ");
        pv_str_put_size(&p->text, c->bytes);
        pv_str_putc(&p->text, '\n');
}

static int report(struct pruning *p, struct pv_err *err)
{
        if (p->o->json)
                return pv_cmd_print_json(json_pack("{s:b, s:{s:O, s:O}, s:I}", "dry_run", p->o->dry_run, "caches",
                                                   "removed", p->removed, "kept", p->kept, "size_bytes",
                                                   (json_int_t)p->bytes),
                                         err);
        if (json_array_size(p->removed) == 0)
                pv_log_note("no caches to remove");
        return pv_cmd_print(&p->text, err);
}

int pv_prune_caches(const struct pv_prune_caches *o, struct pv_err *err)
{
        __attribute__((cleanup(pruning_fini))) struct pruning p = { .o = o };
        struct pv_kept_cache *all = NULL;
        size_t n = 0;
        if (*o->most && pv_parse_size(o->most, &p.most, err) < 0)
                return pv_err_wrap(err, "--caches");
        if (pv_kept_caches_list(&all, &n, err) < 0)
                return -1;
        p.removed = json_array();
        p.kept = json_array();
        for (size_t i = 0; i < n; i++)
                p.total += all[i].bytes;
        for (size_t i = 0; i < n; i++)
                prune_one(&p, &all[i]);
        pv_kept_caches_free(all, n);
        return report(&p, err);
}
