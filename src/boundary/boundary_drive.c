/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives the launcher alone, for its tests: boundary-drive [options] -- COMMAND. Not installed.
 *   --host | --sandbox, --stage DIR:UPPER:WORK, --home-cow, --deny-net, --timeout MS, --mask REL, --hide PATH,
 *   --mount SRC:DST:read|write, --cwd DIR, --scratch DIR, --safe, --plan, --observe
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/path.h"
#include "boundary/boundary.h"
#include "boundary/mountinfo.h"
#include "boundary/root.h"

extern char **environ;

static void show_observations(const struct pv_observations *obs)
{
        for (unsigned i = 0; i < obs->n; i++) {
                const struct pv_observation *o = &obs->item[i];
                fprintf(stderr, "%-16s %-20s %-12s %s%s\n", pv_dimension_name(o->dimension), o->control,
                        pv_level_name(o->level), o->mechanism, o->partial ? " (partial)" : "");
                for (unsigned k = 0; k < o->n_probes; k++)
                        fprintf(stderr, "        %-30s %-10s %s (%s)\n", o->probes[k].name,
                                pv_outcome_name(o->probes[k].outcome), strerror(o->probes[k].sys),
                                o->probes[k].attempted);
                for (unsigned k = 0; k < o->n_limits; k++)
                        fprintf(stderr, "        limit: %s\n", o->limits[k]);
        }
        for (int d = 0; d < PV_DIMENSIONS; d++)
                fprintf(stderr, "%-16s %s\n", pv_dimension_name((enum pv_dimension)d),
                        pv_level_name(pv_observations_level(obs, (enum pv_dimension)d)));
}

int main(int argc, char **argv)
{
        static struct pv_observations obs;
        struct pv_err err = PV_ERR_INIT;
        struct pv_plan plan = { .home_mode = PV_HOME_EMPTY };
        struct pv_root roots[4] = { 0 };
        struct pv_overlay overlays[4] = { 0 };
        struct pv_mount mounts[4] = { 0 };
        bool show = false, observe = false;
        const char *scratch = NULL;
        int i = 1;
        plan.cwd = getcwd(NULL, 0);
        plan.workspace = plan.cwd;
        plan.home = getenv("HOME");
        plan.roots = roots;
        plan.mounts = mounts;
        for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
                const char *o = argv[i];
                if (pv_streq(o, "--host"))
                        plan.filesystem = PV_FS_HOST;
                else if (pv_streq(o, "--sandbox"))
                        plan.filesystem = PV_FS_SANDBOX;
                else if (pv_streq(o, "--home-cow"))
                        plan.home_mode = PV_HOME_COW;
                else if (pv_streq(o, "--deny-net"))
                        plan.net = PV_NET_DENY_ALL;
                else if (pv_streq(o, "--observe"))
                        observe = true;
                else if (pv_streq(o, "--safe"))
                        plan.safe = true;
                else if (pv_streq(o, "--scratch"))
                        scratch = argv[++i];
                else if (pv_streq(o, "--plan"))
                        show = true;
                else if (pv_streq(o, "--timeout"))
                        plan.limits.timeout_ms = strtoull(argv[++i], NULL, 10);
                else if (pv_streq(o, "--mask"))
                        pv_strv_add(&plan.masks, argv[++i]);
                else if (pv_streq(o, "--hide"))
                        pv_strv_add(&plan.hidden, argv[++i]);
                else if (pv_streq(o, "--cwd"))
                        plan.cwd = argv[++i];
                else if (pv_streq(o, "--stage")) {
                        char *s = argv[++i];
                        struct pv_root *r = &roots[plan.n_roots];
                        r->target = r->view = strsep(&s, ":");
                        overlays[plan.n_roots] = (struct pv_overlay){ .root = r };
                        overlays[plan.n_roots].upper = strsep(&s, ":");
                        overlays[plan.n_roots++].work = s;
                        plan.staged = true;
                } else if (pv_streq(o, "--mount")) {
                        char *s = argv[++i];
                        struct pv_mount *m = &mounts[plan.n_mounts++];
                        m->src = strsep(&s, ":");
                        m->dst = strsep(&s, ":");
                        m->access = s && pv_streq(s, "write") ? PV_MOUNT_WRITE : PV_MOUNT_READ;
                } else {
                        fprintf(stderr, "unknown option %s\n", o);
                        return 2;
                }
        }
        for (char **e = environ; *e; e++)
                pv_strv_add(&plan.env, *e);
        plan.argv = argv + i + 1;
        if (show) {
                pv_auto_view view = { 0 };
                pv_auto_mountinfo mi = { 0 };
                pv_auto_str text = { 0 };
                if (pv_mountinfo_read(&mi, &err) < 0 || pv_root_view(&plan, &mi, NULL, &view, &err) < 0) {
                        fprintf(stderr, "%s\n", err.msg);
                        return 1;
                }
                pv_view_describe(&view, &text);
                fputs(text.s, stdout);
                return 0;
        }
        struct pv_boundary_spec spec = {
                .plan = &plan,
                .overlays = overlays,
                .n_overlays = plan.n_roots,
                .scratch = scratch,
                .stdio = { 0, 1, 2 },
                .terminal = isatty(0),
        };
        struct pv_boundary *b = NULL;
        struct pv_exit end;
        int started = pv_boundary_start(&spec, &b, &obs, &err);
        if (observe)
                show_observations(&obs);
        if (started < 0 || pv_boundary_wait(b, &end, &err) < 0) {
                fprintf(stderr, "drive: %s\n", err.msg);
                if (err.hint[0])
                        fprintf(stderr, "hint: %s\n", err.hint);
                return 125;
        }
        pv_boundary_free(b);
        if (end.end == PV_END_TIMEOUT)
                return 124;
        return end.end == PV_END_EXITED ? end.code : 128 + end.code;
}
