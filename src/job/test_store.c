/* SPDX-License-Identifier: Apache-2.0 */
#include "job/test_store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/path.h"

int test_store_make(void **state)
{
        char path[] = "/tmp/pvisor-store-XXXXXX";
        if (!mkdtemp(path))
                return -1;
        *state = pv_strdup(path);
        return setenv("PVISOR_HOME", path, 1);
}

int test_store_remove(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        int r = pv_path_remove_tree(AT_FDCWD, *state, &err);
        free(*state);
        return r;
}

const struct pv_plan *test_plan(const char *name)
{
        static char workspace[128];
        static char program[] = "true", argument[] = "a b", home[] = "/home/person";
        static char *argv[] = { program, argument, NULL };
        static char secret[] = "TOKEN=hunter2", path[] = "PATH=/usr/bin";
        static char *env[] = { secret, path, NULL };
        static char token[] = "TOKEN";
        static char *passed[] = { token, NULL };
        static struct pv_root root;
        static struct pv_plan plan;
        (void)snprintf(workspace, sizeof workspace, "/work/%s", name);
        root = (struct pv_root){ PV_ROOT_WORKSPACE, workspace, workspace };
        plan = (struct pv_plan){
                .argv = argv,
                .workspace = workspace,
                .cwd = workspace,
                .home = home,
                .staged = true,
                .safe = true,
                .filesystem = PV_FS_SANDBOX,
                .net = PV_NET_DENY_ALL,
                .home_mode = PV_HOME_COW,
                .limits = { .memory_bytes = 1 << 20 },
                .roots = &root,
                .n_roots = 1,
                .env = { env, 2 },
                .env_passed = { passed, 1 },
        };
        plan.required[PV_DIM_NETWORK] = true;
        return &plan;
}
