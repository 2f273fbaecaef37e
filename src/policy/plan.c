/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/plan.h"

bool pv_limits_any(const struct pv_limits *l)
{
        return l->timeout_ms || l->memory_bytes || l->max_processes || l->max_cpu_ms || l->max_open_files ||
               l->max_file_bytes;
}

static void free_argv(struct pv_plan *plan)
{
        for (size_t i = 0; plan->argv && plan->argv[i]; i++)
                free(plan->argv[i]);
        free(plan->argv);
}

void pv_plan_set_argv(struct pv_plan *plan, char *const *argv)
{
        struct pv_strv copy = { 0 }; /* becomes the plan's */
        for (; *argv; argv++)
                pv_strv_add(&copy, *argv);
        free_argv(plan);
        plan->argv = copy.v;
}

void pv_plan_forget_kept(struct pv_plan *plan)
{
        for (size_t i = 0; i < plan->n_state; i++) {
                free(plan->state[i].src);
                free(plan->state[i].dst);
                free(plan->state[i].rel);
        }
        free(plan->state);
        plan->state = NULL;
        plan->n_state = 0;
        pv_plan_forget_caches(plan);
}

void pv_plan_forget_caches(struct pv_plan *plan)
{
        pv_strv_fini(&plan->caches);
        free(plan->cache_dir);
        plan->caches = (struct pv_strv){ 0 };
        plan->cache_dir = NULL;
}

void pv_mount_fini(struct pv_mount *m)
{
        free(m->src);
        free(m->dst);
        free(m->named);
        free(m->content);
        *m = (struct pv_mount){ 0 };
}

void pv_plan_free(struct pv_plan *plan)
{
        if (!plan)
                return;
        free_argv(plan);
        free(plan->workspace);
        free(plan->cwd);
        free(plan->home);
        for (size_t i = 0; i < plan->n_roots; i++) {
                free(plan->roots[i].target);
                free(plan->roots[i].view);
        }
        free(plan->roots);
        for (size_t i = 0; i < plan->n_mounts; i++)
                pv_mount_fini(&plan->mounts[i]);
        free(plan->mounts);
        for (size_t i = 0; i < plan->n_services; i++) {
                free(plan->services[i].what);
                free(plan->services[i].path);
        }
        free(plan->services);
        pv_strv_fini(&plan->toolchains);
        free(plan->profile.name);
        free(plan->profile.path);
        free(plan->profile.inner_sandbox);
        free(plan->profile.asked);
        pv_strv_fini(&plan->profile.hosts);
        pv_strv_fini(&plan->profile.pass_env);
        pv_strv_fini(&plan->profile.set_env);
        pv_plan_forget_kept(plan);
        pv_netpolicy_fini(&plan->netpolicy);
        free(plan->publications);
        free(plan->host_ports);
        pv_strv_fini(&plan->devices);
        pv_strv_fini(&plan->hidden);
        pv_strv_fini(&plan->unmade);
        pv_strv_fini(&plan->masks);
        pv_strv_fini(&plan->env);
        pv_strv_fini(&plan->env_passed);
        pv_strv_fini(&plan->env_asked);
        pv_strv_fini(&plan->env_injected);
        free(plan);
}
