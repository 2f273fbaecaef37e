/* SPDX-License-Identifier: Apache-2.0 */
#include "base/passwd.h"

#include <pwd.h>
#include <stdio.h>
#include "base/str.h"

char *pv_passwd_home(const char *file, uid_t uid)
{
        char *home = NULL;
        FILE *f = fopen(file, "re");
        if (!f)
                return NULL;
        for (const struct passwd *pw; !home && (pw = fgetpwent(f));)
                if (pw->pw_uid == uid && pw->pw_dir && pw->pw_dir[0] == '/')
                        home = pv_strdup(pw->pw_dir);
        (void)fclose(f);
        return home;
}
