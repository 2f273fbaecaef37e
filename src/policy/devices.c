/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/devices.h"

#include <fnmatch.h>
#include "policy/services.h"

/* The first row that fits decides; patterns are of fnmatch(3), "*" not matching a slash. */
static const struct device {
        const char *what, *why;
        unsigned opens;
        const char *patterns[6];
} devices[] = {
        { "a device of every view", "", 0, { "null", "zero", "full", "random", "urandom", "tty" } },
        /*
         * Without a mount, which the view forbids, nobody is served by it; what runs in a guest is the command's own.
         */
        { "the device of FUSE", "", 0, { "fuse" } },
        { "the device of virtual machines", "", 0, { "kvm" } },
        { "a network device",
          "the host's network is reached by it, whatever the rules say",
          PV_OPENS(NETWORK),
          { "net/*", "net", "vsock", "vhost-*" } },
        { "a sound device", "it hears the microphone", PV_OPENS(READS), { "snd", "snd/*" } },
        { "a camera", "it sees the room", PV_OPENS(READS), { "video*", "media*", "v4l", "v4l/*" } },
        { "a graphics device",
          "its memory holds what others draw and compute",
          PV_OPENS(READS),
          { "dri", "dri/*", "nvidia*", "kfd", "fb*" } },
        { "a security module",
          "it signs and unseals with the machine's keys",
          PV_OPENS(CREDENTIALS) | PV_OPENS(SENSITIVE_PATHS),
          { "tpm*" } },
        { "an input device",
          "it hears what you type, or types for you",
          PV_OPENS_SESSION,
          { "input", "input/*", "uinput", "hidraw*", "uhid" } },
        { "a terminal",
          "what is typed there is read, and what is shown there is believed",
          PV_OPENS_SESSION,
          { "tty[0-9]*", "vcs*", "console", "pts", "pts/*" } },
        { "the kernel's log", "it tells what happens on the machine", PV_OPENS(READS), { "kmsg" } },
};

static const struct device unknown = { "a device", "what it opens is not known", PV_OPENS_MACHINE, { NULL } };
static const struct device disk = {
        "a disk", "every file on it is read and written past all limits", PV_OPENS_MACHINE, { NULL }
};

static const struct device *judge(const char *path, const struct stat *st)
{
        const char *name = path + sizeof "/dev/" - 1;
        if (S_ISBLK(st->st_mode))
                return &disk;
        for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
                for (size_t k = 0; k < sizeof devices->patterns / sizeof *devices->patterns; k++)
                        if (devices[i].patterns[k] && fnmatch(devices[i].patterns[k], name, FNM_PATHNAME) == 0)
                                return &devices[i];
        return &unknown;
}

int pv_devices_check(struct pv_plan *plan, const char *path, const struct stat *st, bool i_know, struct pv_err *err)
{
        const struct device *d = judge(path, st);
        if (!d->opens)
                return 0;
        if (plan->safe && !i_know) {
                (void)pv_err_set(err, PV_ERR_POLICY, 0, "--device %s: %s: %s", path, d->what, d->why);
                return pv_err_hint(err, "leave it out; --device %s --i-know shows it, recorded as unenforced", path);
        }
        pv_services_open(plan,
                         &(struct pv_service){
                                 .what = (char *)d->what, .path = (char *)path, .opens = d->opens, .device = true });
        return 0;
}
