/* SPDX-License-Identifier: Apache-2.0 */
#include "base/statedir.h"

#include <stdlib.h>
#include <unistd.h>
#include "base/passwd.h"
#include "base/path.h"

static int home_of_person(char **out, struct pv_err *err)
{
        const char *home = getenv("HOME");
        *out = home && home[0] == '/' ? pv_strdup(home) : pv_passwd_home(PV_PASSWD, geteuid());
        if (!*out) {
                pv_err_set(err, PV_ERR_USAGE, 0, "job store: there is neither PVISOR_HOME nor a home directory");
                return pv_err_hint(err, "set PVISOR_HOME to a directory of yours");
        }
        return 0;
}

int pv_state_dir(char **out, struct pv_err *err)
{
        const char *own = getenv("PVISOR_HOME");
        const char *state = getenv("XDG_STATE_HOME"); /* a relative one is to be ignored (XDG base directories) */
        pv_auto_free char *path = NULL;
        if (own && *own == '/') {
                path = pv_strdup(own);
        } else if (own && *own) {
                pv_auto_free char *cwd = getcwd(NULL, 0);
                if (!cwd)
                        return pv_err_set(err, PV_ERR_SYS, errno, "job store: current directory");
                path = pv_path_join(cwd, own);
        } else if (state && *state == '/') {
                path = pv_path_join(state, "pvisor");
        } else {
                pv_auto_free char *home = NULL;
                if (home_of_person(&home, err) < 0)
                        return -1;
                path = pv_path_join(home, ".local/state/pvisor");
        }
        *out = pv_path_normalise(path);
        return 0;
}
