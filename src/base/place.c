/* SPDX-License-Identifier: Apache-2.0 */
#include "base/place.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>
#include "base/path.h"

int pv_place_self(char **out, struct pv_err *err)
{
        char self[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "/proc/self/exe");
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        if (!slash)
                return pv_err_set(err, PV_ERR_SYS, ENOENT, "/proc/self/exe: %s", self);
        *slash = '\0';
        *out = pv_strdup(self);
        return 0;
}

int pv_place_find(const char *const *places, char **out, struct pv_err *err)
{
        pv_auto_free char *self = NULL;
        if (pv_place_self(&self, err) < 0)
                return -1;
        for (const char *const *p = places; *p; p++) {
                pv_auto_free char *joined = pv_path_join(self, *p);
                pv_auto_free char *path = pv_path_normalise(joined);
                if (access(path, F_OK) == 0) {
                        *out = pv_steal(&path);
                        return 0;
                }
        }
        (void)pv_err_set(err, PV_ERR_SYS, ENOENT, "%s/%s", self, places[0]);
        (void)pv_err_hint(err, "the installation is not whole: install pVisor again; or, inside a run, show all of it "
                               "(--mount PREFIX:read)");
        return -1;
}

int pv_place_program(const char *name, char **out, struct pv_err *err)
{
        pv_auto_free char *installed = pv_strf("../libexec/pvisor/%s", name), *above = pv_strf("../../bin/%s", name);
        const char *const places[] = { installed, name, above, NULL };
        return pv_place_find(places, out, err);
}
