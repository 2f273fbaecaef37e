/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/run_end.h"

#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>

int pv_cmd_end_as(const struct pv_run_end *end)
{
        const struct rlimit no_core = { 0, 0 };
        sigset_t one;
        if (end->signal == 0)
                return end->code;
        (void)setrlimit(RLIMIT_CORE, &no_core); /* it was the command that was to be looked into, not pVisor */
        (void)signal(end->signal, SIG_DFL);
        sigemptyset(&one);
        sigaddset(&one, end->signal);
        (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
        (void)raise(end->signal);
        return end->code;
}
