/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/services.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mountinfo.h"
#include "base/path.h"
#include "policy/env.h"

/*
 * "~/" is HOME, "%u" the user's id. The variable names a socket, too: a path, or an address with a path in it.
 */
static const struct service {
        const char *what, *why;
        unsigned opens;
        const char *variable;
        const char *paths[8];
} services[] = {
        { "the Docker socket",
          "its daemon does with root's rights what it is told",
          PV_OPENS_MACHINE,
          "DOCKER_HOST",
          { "/run/docker.sock", "/run/user/%u/docker.sock", "~/.docker/run", "~/.docker/desktop", "~/.colima",
            "~/.rd/docker.sock", "~/.orbstack/run" } },
        { "the Podman socket",
          "its service runs containers outside of the boundary",
          PV_OPENS_MACHINE,
          "CONTAINER_HOST",
          { "/run/podman", "/run/user/%u/podman" } },
        { "a container engine's socket",
          "its daemon does with root's rights what it is told",
          PV_OPENS_MACHINE,
          "CONTAINERD_ADDRESS",
          { "/run/containerd", "/run/k3s/containerd", "/run/crio", "/run/buildkit", "/var/lib/incus/unix.socket",
            "/var/snap/lxd/common/lxd/unix.socket", "/run/libvirt" } },
        { "an ssh agent",
          "it signs with your keys whatever it is asked to",
          PV_OPENS(CREDENTIALS) | PV_OPENS(SENSITIVE_PATHS),
          "SSH_AUTH_SOCK",
          { "/run/user/%u/ssh-agent.socket", "/run/user/%u/openssh_agent", "/run/user/%u/keyring",
            "~/.1password/agent.sock" } },
        { "the gpg agent",
          "it signs and decrypts with your keys",
          PV_OPENS(CREDENTIALS) | PV_OPENS(SENSITIVE_PATHS),
          NULL,
          { "/run/user/%u/gnupg", "~/.gnupg" } },
        { "the D-Bus session bus",
          "it starts programs and opens key rings outside of the boundary",
          PV_OPENS_SESSION,
          "DBUS_SESSION_BUS_ADDRESS",
          { "/run/user/%u/bus", "/run/user/%u/systemd" } },
        { "the D-Bus system bus",
          "it reaches the machine's services",
          PV_OPENS_SESSION,
          "DBUS_SYSTEM_BUS_ADDRESS",
          { "/run/dbus", "/run/systemd/private" } },
        { "the X11 display",
          "whoever has it reads what you type and types for you",
          PV_OPENS_SESSION,
          NULL,
          { "/tmp/.X11-unix" } },
        { "the Wayland display",
          "it shows windows and reaches the clipboard outside of the boundary",
          PV_OPENS(CREDENTIALS) | PV_OPENS(READS),
          "WAYLAND_DISPLAY",
          { "/run/user/%u/wayland-0", "/run/user/%u/wayland-1" } },
        { "the sound and screen server",
          "it hears the microphone and sees the screen",
          PV_OPENS(READS),
          "PULSE_SERVER",
          { "/run/user/%u/pulse", "/run/user/%u/pipewire-0" } },
        { "a tmux server",
          "it types commands into your other windows",
          PV_OPENS_SESSION,
          "TMUX",
          { "/tmp/tmux-%u", "/run/screen" } },
        { "the directory of the machine's sockets",
          "what listens there acts for whoever connects",
          PV_OPENS_MACHINE,
          NULL,
          { "/run", "/run/user" } },
        { "the directory of your session's sockets",
          "what listens there acts for you",
          PV_OPENS_SESSION,
          "XDG_RUNTIME_DIR",
          { "/run/user/%u" } },
};
#define SERVICES (sizeof services / sizeof *services)

/* A path of the table; the caller's. */
static char *expand(const struct pv_plan *plan, const char *path)
{
        const char *u = strstr(path, "%u");
        if (strncmp(path, "~/", 2) == 0)
                return pv_path_join(plan->home, path + 2);
        return u ? pv_strf("%.*s%u%s", (int)(u - path), path, (unsigned)geteuid(), u + 2) : pv_strdup(path);
}

/*
 * The path that a variable's value holds: "/path", "unix:///path", "unix:path=/path,guid=...", "/path,123,0"; or
 * NULL.
 */
static char *path_of_value(const char *value, char *const *environment)
{
        const char *slash = strchr(value, '/');
        if (!slash && *value && !strchr(value, ':')) { /* wayland-1 */
                const char *dir = pv_env_get(environment, "XDG_RUNTIME_DIR");
                return dir && dir[0] == '/' ? pv_path_join(dir, value) : NULL;
        }
        bool named = slash == value || strncmp(value, "unix:", 5) == 0;
        while (slash && slash[1] == '/')
                slash++;
        return named && slash ? pv_strndup(slash, strcspn(slash, ",;")) : NULL;
}

struct judged {
        const struct pv_mount *m;
        struct stat st;
};

/*
 * A read-only or staged share is an overlay, where sockets are inert. There only a socket by its own name counts, and
 * what nobody would show for anything but its sockets: the machine's and the session's directories of them.
 */
static bool shows(const struct pv_plan *plan, const struct judged *j, const char *path)
{
        struct stat st;
        if (j->m->access != PV_MOUNT_WRITE && S_ISDIR(j->st.st_mode) && pv_path_is_within(j->m->src, plan->home))
                return false;
        pv_auto_free char *real = realpath(path, NULL);
        if (pv_path_is_within(j->m->src, real ? real : path))
                return pv_streq(j->m->src, real ? real : path) || (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) ||
                       S_ISSOCK(j->st.st_mode);
        return j->m->access == PV_MOUNT_WRITE && real && pv_path_is_or_holds(&j->st, real);
}

static bool is_shown(const struct pv_plan *plan, const struct service *s, const struct judged *j,
                     char *const *environment)
{
        for (size_t i = 0; i < sizeof s->paths / sizeof *s->paths && s->paths[i]; i++) {
                pv_auto_free char *path = expand(plan, s->paths[i]);
                if (shows(plan, j, path))
                        return true;
        }
        const char *value = s->variable ? pv_env_get(environment, s->variable) : NULL;
        pv_auto_free char *path = value ? path_of_value(value, environment) : NULL;
        return path && shows(plan, j, path);
}

void pv_services_open(struct pv_plan *plan, const struct pv_service *s)
{
        plan->services = pv_realloc(plan->services, plan->n_services + 1, sizeof *plan->services);
        plan->services[plan->n_services++] = (struct pv_service){
                .what = pv_strdup(s->what), .path = pv_strdup(s->path), .opens = s->opens, .device = s->device
        };
}

static void open_dimensions(struct pv_plan *plan, const char *what, const char *path, unsigned opens)
{
        pv_services_open(plan, &(struct pv_service){ .what = (char *)what, .path = (char *)path, .opens = opens });
}

static int refuse(const struct pv_mount *m, const char *what, const char *why, struct pv_err *err)
{
        (void)pv_err_set(err, PV_ERR_POLICY, 0, "--mount %s: shows %s: %s", m->src, what, why);
        return pv_err_hint(err, "leave it out; --mount %s:write --i-know shows it, recorded as unenforced", m->src);
}

/*
 * File systems that are not files but the kernel: by their files root sets what the machine runs, whatever namespaces
 * and capabilities it was left (core_pattern, uevent_helper, control groups). proc also shows all processes.
 */
static bool is_kernels(const char *type, enum pv_mount_access access)
{
        static const char *const types[] = { "proc",       "sysfs",    "cgroup",   "cgroup2",     "debugfs",
                                             "tracefs",    "configfs", "efivarfs", "binfmt_misc", "bpf",
                                             "securityfs", "pstore",   "fusectl",  "selinuxfs",   "smackfs",
                                             "rpc_pipefs", "nfsd" };
        for (size_t i = 0; i < (access == PV_MOUNT_WRITE ? sizeof types / sizeof *types : 1); i++)
                if (pv_streq(type, types[i]))
                        return true;
        return false;
}

/* The mount that m->src lies in, and those below it, which a share takes along. */
static int shows_the_kernel(const struct pv_mount *m, bool *out, struct pv_err *err)
{
        pv_auto_mountinfo table = { 0 };
        const struct pv_mount_entry *in = NULL;
        pv_auto_free char *real = realpath(m->src, NULL);
        *out = false;
        if (!real || pv_mountinfo_read(&table, err) < 0)
                return real ? -1 : 0;
        for (size_t i = 0; i < table.n; i++) {
                const struct pv_mount_entry *e = &table.v[i];
                if (pv_path_is_within(real, e->point) && (!in || strlen(e->point) >= strlen(in->point)))
                        in = e; /* of several at one place the last is seen */
                else if (pv_path_is_within(e->point, real))
                        *out |= is_kernels(e->type, m->access);
        }
        *out |= in && is_kernels(in->type, m->access);
        return 0;
}

/* What the mount shows is either given up, at the person's word, or refused. */
static int judge(struct pv_plan *plan, const struct pv_mount *m, const struct pv_service *s, const char *why,
                 bool i_know, struct pv_err *err)
{
        if (plan->safe && (!i_know || m->access != PV_MOUNT_WRITE))
                return refuse(m, s->what, why, err);
        if (m->access == PV_MOUNT_WRITE || plan->safe)
                open_dimensions(plan, s->what, m->src, s->opens);
        return 0;
}

int pv_services_check_mount(struct pv_plan *plan, const struct pv_mount *m, char *const *environment, bool i_know,
                            struct pv_err *err)
{
        struct judged j = { .m = m };
        bool known = false, kernel = false;
        if (stat(m->src, &j.st) < 0)
                return 0; /* the mount itself says so */
        for (size_t i = 0; i < SERVICES; i++) {
                const struct service *s = &services[i];
                const struct pv_service shown = { .what = (char *)s->what, .opens = s->opens };
                if (!is_shown(plan, s, &j, environment))
                        continue;
                if (judge(plan, m, &shown, s->why, i_know, err) < 0)
                        return -1;
                known = true;
        }
        if (shows_the_kernel(m, &kernel, err) < 0)
                return -1;
        static const struct pv_service settings = { .what = "the kernel's own files", .opens = PV_OPENS_MACHINE };
        if (kernel &&
            judge(plan, m, &settings, "by them root changes the machine, and sees its processes", i_know, err) < 0)
                return -1;
        static const struct pv_service socket = { .what = "a socket of a program outside", .opens = PV_OPENS_MACHINE };
        if (known || !S_ISSOCK(j.st.st_mode))
                return 0;
        return judge(plan, m, &socket, "what it does for whoever connects is not known", i_know, err);
}

void pv_services_note_variables(const struct pv_plan *plan, char *const *environment, struct pv_strv *notes)
{
        for (size_t i = 0; i < SERVICES; i++) {
                const struct service *s = &services[i];
                bool shown = false;
                if (!s->variable || !pv_strv_has(&plan->env_passed, s->variable))
                        continue;
                pv_auto_free char *path = path_of_value(pv_env_get(environment, s->variable), environment);
                for (size_t k = 0; path && k < plan->n_mounts; k++)
                        shown |= pv_path_is_within(path, plan->mounts[k].dst);
                if (path && !shown)
                        pv_strv_take(notes, pv_strf("--pass-env %s: what it names is not shown: %s; --mount %s:write "
                                                    "--i-know shows it",
                                                    s->variable, s->why, path));
        }
}
