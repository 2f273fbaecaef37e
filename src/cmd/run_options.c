/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `run`: the published tool's, so that its examples run, and what this version refuses of them. */
#include "cmd/run_options.h"

#include "policy/network.h"
#include "policy/request.h"

#define FIELD(name_) offsetof(struct pv_request, name_)

/* Below these the dynamic linker dies before a program can say why. */
#define LEAST_MEMORY     (UINT64_C(1) << 20)
#define LEAST_OPEN_FILES 16

static const char *const filesystems[] = { "host", "sandbox", NULL };
static const char *const backends[] = { "auto", "kernel", "fuse", NULL };
static const char *const stdios[] = { "inherit", "capture", NULL };
static const char *const networks[] = { "auto", "off", "proxy", NULL };
static const char *const executors[] = { "host", "container", "vm", NULL };

#define REFUSED_ROW(name_, flags_, help_, instead_)                                                        \
        {                                                                                                  \
                .name = name_, .type = PV_OPT_REFUSED, .flags = flags_, .help = help_, .instead = instead_ \
        }
#define REFUSED(name_, ...)       REFUSED_ROW(name_, 0, __VA_ARGS__)
#define REFUSED_LIMIT(name_, ...) REFUSED_ROW(name_, PV_OPT_LIMIT, __VA_ARGS__)

/* What the refused rows below share. */
#define ON_THIS_SYSTEM \
        "leave it out: `pvisor run --safe -- COMMAND` confines a program of this machine, without an image"
#define CONTAINERS "the container executor", ON_THIS_SYSTEM
#define MACHINES   "the virtual machine executor", ON_THIS_SYSTEM
#define ROOTS      "a root file system other than the host's", ON_THIS_SYSTEM
#define PATH_RULES                                                                                                 \
        "rules for paths inside the workspace", "keep such files outside of it, or look at the review before you " \
                                                "apply"
#define MODEL_TRAFFIC "capturing a model's traffic", "`pvisor review` lists which hosts it reached, with bytes"
#define WORKSPACES \
        "prepared workspaces", "`pvisor fork JOB@CHECKPOINT -- COMMAND` starts on what another job has staged"

const struct pv_opt pv_run_options[] = {
        { .name = "safe",
          .type = PV_OPT_FLAG,
          .field = FIELD(safe),
          .group = "Boundary",
          .help = "Everything at once, and all of it enforced or the run is refused: changes staged, the rest of the "
                  "file system hidden or read-only, a throw-away view of HOME without its credential stores, a clean "
                  "environment, no network but what is allowed, nothing left running." },
        { .name = "strict",
          .type = PV_OPT_FLAG,
          .field = FIELD(strict),
          .help = "Refuse to start (exit 5) unless every limit that this run asks for is enforced, and proved by "
                  "probes." },
        { .name = "stage",
          .type = PV_OPT_TEXT,
          .arg = "DIR",
          .flags = PV_OPT_ARG_OPTIONAL,
          .complete = PV_COMPLETE_DIR,
          .field = FIELD(stage),
          .help = "Keep file changes in a stage until they are applied: in DIR (--stage=DIR, or --stage DIR before "
                  "--), else in the job's own directory. Brings --filesystem sandbox with it. A DIR that holds a stage "
                  "is continued." },
        { .name = "stage-max-size",
          .type = PV_OPT_TEXT,
          .arg = "SIZE[:warn|:stop]",
          .field = FIELD(stage_max_size),
          .help = "Say once when the stage has grown beyond SIZE, or end the job (TERM, then KILL; exit code 124); "
                  "5GiB "
                  "and warn where nothing is said, 0 for no limit. It is looked at about once a second: a bound "
                  "against "
                  "a full disk, not a quota." },
        { .name = "stage-backend",
          .type = PV_OPT_CHOICE,
          .arg = "KIND",
          .choices = backends,
          .field = FIELD(stage_backend),
          .help = "What serves the staged view. kernel: overlayfs, fast. fuse: a program of pVisor's, for what "
                  "overlayfs cannot show: mounts below the workspace, files of other groups, a stage inside a "
                  "container. auto: fuse where kernel cannot (the default)." },
        { .name = "continue",
          .type = PV_OPT_TEXT,
          .arg = "JOB",
          .flags = PV_OPT_CLI_ONLY,
          .complete = PV_COMPLETE_JOB,
          .field = FIELD(continue_job),
          .help = "Go on with the stage of an ended job, under --safe where that was (--stage: no more than a stage), "
                  "with "
                  "the --profile that was named for it." },
        { .name = "profile",
          .type = PV_OPT_TEXT,
          .arg = "NAME",
          .complete = PV_COMPLETE_PROFILE,
          .field = FIELD(profile),
          .help = "What the agent NAME needs: its hosts, a directory for its login and state, its settings read-only, "
                  "its variables. Under --safe that of the program's name is taken when there is one; none: take "
                  "none. `pvisor profile` lists and shows them." },
        { .name = "no-state",
          .type = PV_OPT_FLAG,
          .field = FIELD(no_state),
          .help = "Without the agent's login and state: what it writes to HOME is thrown away." },
        { .name = "no-caches",
          .type = PV_OPT_FLAG,
          .field = FIELD(no_caches),
          .help = "Without this workspace's caches (~/.cache, ~/.npm, ...) of earlier runs, and without keeping those "
                  "of this one." },
        { .name = "filesystem",
          .type = PV_OPT_CHOICE,
          .arg = "MODE",
          .choices = filesystems,
          .field = FIELD(filesystem),
          .help = "What of the host is seen. host: all as it is. sandbox: system directories read-only, the "
                  "workspace, an empty HOME, and what --mount adds." },
        { .name = "mount",
          .type = PV_OPT_LIST,
          .arg = "SRC[:DST]:ACCESS",
          .complete = PV_COMPLETE_DIR,
          .field = FIELD(mount),
          .help = "Show one more file or directory: read, stage or write. Repeatable." },
        { .name = "i-know",
          .type = PV_OPT_FLAG,
          .flags = PV_OPT_CLI_ONLY,
          .field = FIELD(i_know),
          .help = "With --mount and --device: show even what speaks for you or for the machine (the Docker, D-Bus, "
                  "X11, Wayland sockets, ssh and gpg agents; disks, input devices). What that opens is recorded as "
                  "unenforced." },
        { .name = "device",
          .type = PV_OPT_LIST,
          .arg = "PATH",
          .complete = PV_COMPLETE_FILE,
          .field = FIELD(device),
          .help = "Show one more device of /dev; what it opens is recorded as unenforced. Repeatable." },
        { .name = "workspace",
          .type = PV_OPT_TEXT,
          .arg = "DIR",
          .flags = PV_OPT_CLI_ONLY,
          .complete = PV_COMPLETE_DIR,
          .field = FIELD(workspace),
          .help = "The directory to work in and to stage, in place of the git top level of the current directory." },
        { .name = "overlaynet",
          .type = PV_OPT_CHOICE,
          .arg = "MODE",
          .choices = networks,
          .flags = PV_OPT_ARG_OPTIONAL,
          .field = FIELD(overlaynet),
          .help = "The network. auto: enforced rules (the default under --safe, which allows nothing by itself, and "
                  "when "
                  "there is any rule). off: it is not restricted, not even by --safe. proxy: rules that hold only for "
                  "programs that use the proxy they are given." },
        { .name = "overlaynet-allow",
          .type = PV_OPT_LIST,
          .arg = "TARGET",
          .field = FIELD(overlaynet_allow),
          .complete = PV_COMPLETE_TARGET,
          .check = pv_check_net_target,
          .help = "Let it reach HOST, *.SUFFIX, ADDRESS or CIDR, each with an optional :PORT, :FIRST-LAST or a list of "
                  "them, or a @GROUP (@npm @pypi @crates @go @debian @github, and your own in groups.yaml); all else "
                  "is "
                  "then refused. host.pvisor.internal:PORT is this machine's loopback. Repeatable." },
        { .name = "overlaynet-deny",
          .type = PV_OPT_LIST,
          .arg = "TARGET",
          .field = FIELD(overlaynet_deny),
          .complete = PV_COMPLETE_TARGET,
          .check = pv_check_net_target,
          .help = "Refuse these targets; wins over every allow, and over what is granted later. Repeatable." },
        { .name = "overlaynet-limit",
          .type = PV_OPT_LIST,
          .arg = "[TARGET=]RATE",
          .field = FIELD(overlaynet_limit),
          .check = pv_check_net_limit,
          .help = "At most 10mbps, 2mb/s, ... to and from a target, or in all; limits stack. Repeatable." },
        { .name = "overlaynet-allow-private-ips",
          .type = PV_OPT_FLAG,
          .field = FIELD(overlaynet_allow_private_ips),
          .help = "Names may lead to private addresses (10/8, 192.168/16, fc00::/7, ...)." },
        { .name = "publish",
          .type = PV_OPT_LIST,
          .arg = "[ADDR:]HOSTPORT[:PORT]",
          .letter = 'p',
          .field = FIELD(publish),
          .check = pv_check_publication,
          .help = "Make a port of the sandbox reachable on this machine, on loopback unless ADDR says otherwise. "
                  "Repeatable." },
        { .name = "host-port",
          .type = PV_OPT_LIST,
          .arg = "HOSTPORT[:PORT]",
          .field = FIELD(host_port),
          .check = pv_check_host_port,
          .help = "Make a port of this machine's loopback reachable on the sandbox's own (localhost), under the same "
                  "number or as PORT. Repeatable." },
        { .name = "overlaynet-deny-all",
          .type = PV_OPT_FLAG,
          .field = FIELD(overlaynet_deny_all),
          .help = "No network: a namespace with nothing in it but its own loopback, and nothing to grant later." },
        { .name = "allow-userns",
          .type = PV_OPT_FLAG,
          .field = FIELD(allow_userns),
          .help = "Let the command make namespaces (for a sandbox of its own; none of control groups); one wall less, "
                  "and recorded." },
        { .name = "executor",
          .type = PV_OPT_CHOICE,
          .arg = "WHERE",
          .choices = executors,
          .field = FIELD(executor),
          .help = "Where it runs; host is the only one of this version." },

        { .name = "pass-env",
          .type = PV_OPT_LIST,
          .arg = "NAME",
          .complete = PV_COMPLETE_ENV,
          .field = FIELD(pass_env),
          .group = "Environment and streams",
          .help = "Hand on one more variable of this environment. Repeatable." },
        { .name = "clear-pass-env",
          .type = PV_OPT_FLAG,
          .flags = PV_OPT_CLI_ONLY,
          .field = FIELD(clear_pass_env),
          .help = "Forget the pass-env of the configuration file." },
        { .name = "detach",
          .letter = 'd',
          .type = PV_OPT_FLAG,
          .flags = PV_OPT_CLI_ONLY,
          .field = FIELD(detach),
          .help = "Print the job's id and return once the command runs; errors before that are reported as always. It "
                  "outlives this terminal; its output is kept (`pvisor logs`). With a terminal as standard output it "
                  "gets one of its own: `pvisor attach`." },
        { .name = "stdio",
          .type = PV_OPT_CHOICE,
          .arg = "MODE",
          .choices = stdios,
          .field = FIELD(stdio),
          .help = "Where output goes. capture: stdout and stderr to the job's record (`pvisor logs`)." },

        { .name = "timeout",
          .type = PV_OPT_DURATION,
          .arg = "TIME",
          .field = FIELD(timeout),
          .group = "Limits",
          .help = "End it after this long (TERM, then KILL); exit code 124." },
        { .name = "memory",
          .letter = 'm',
          .type = PV_OPT_SIZE,
          .arg = "SIZE",
          .least = LEAST_MEMORY,
          .least_text = "1MiB",
          .field = FIELD(memory),
          .help = "Memory of the job; at least 1MiB." },
        { .name = "mem",
          .type = PV_OPT_SIZE,
          .arg = "SIZE",
          .flags = PV_OPT_HIDDEN,
          .least = LEAST_MEMORY,
          .least_text = "1MiB",
          .field = FIELD(memory),
          .help = "Another spelling of --memory." },
        { .name = "max-processes",
          .type = PV_OPT_COUNT,
          .arg = "N",
          .field = FIELD(max_processes),
          .help = "Processes and threads at once." },
        { .name = "max-cpu-time",
          .type = PV_OPT_DURATION,
          .arg = "TIME",
          .field = FIELD(max_cpu_time),
          .help = "Processor time of each process." },
        { .name = "max-open-files",
          .type = PV_OPT_COUNT,
          .arg = "N",
          .least = LEAST_OPEN_FILES,
          .least_text = "16",
          .field = FIELD(max_open_files),
          .help = "Open descriptors of each process; at least 16." },
        { .name = "max-file-size",
          .type = PV_OPT_SIZE,
          .arg = "SIZE",
          .field = FIELD(max_file_size),
          .help = "Size of a file that is written." },

        { .name = "name",
          .type = PV_OPT_TEXT,
          .arg = "NAME",
          .flags = PV_OPT_CLI_ONLY,
          .field = FIELD(name),
          .group = "The job",
          .help = "A name that other commands take in place of the job's id." },
        { .name = "config",
          .type = PV_OPT_TEXT,
          .arg = "FILE",
          .flags = PV_OPT_CLI_ONLY,
          .complete = PV_COMPLETE_FILE,
          .field = FIELD(config),
          .help = "Read options from this YAML file in place of $XDG_CONFIG_HOME/pvisor/config.yaml; the command line "
                  "wins." },
        { .name = "json",
          .type = PV_OPT_TEXT,
          .arg = "FD|FILE",
          .flags = PV_OPT_ARG_OPTIONAL | PV_OPT_ATTACHED | PV_OPT_CLI_ONLY,
          .field = FIELD(json),
          .help = "Write a JSON summary of the finished run to stderr, a descriptor or a file." },
        { .name = "dry-run",
          .type = PV_OPT_FLAG,
          .flags = PV_OPT_CLI_ONLY,
          .field = FIELD(dry_run),
          .help = "Show what would be done (with --json as JSON) and do nothing." },

        REFUSED("ask", "asking a person about each access",
                "what is refused is said after the run; `pvisor allow JOB HOST` opens it while the job runs"),
        REFUSED_LIMIT("access", PATH_RULES),
        REFUSED("clear-access", PATH_RULES),
        REFUSED("overlaynet-listen", "a proxy at an address of your choice",
                "--overlaynet proxy gives the command a proxy and its variables; --safe needs none"),
        REFUSED_LIMIT("overlayfs-max-size", "a hard byte budget of the stage",
                      "--stage-max-size SIZE:stop ends the job soon after, --max-file-size limits each file"),
        REFUSED("stage-durability", "syncing each change of the stage", "leave it out: what is applied is synced"),
        REFUSED_LIMIT("cpu", "a share of the processors", "--max-cpu-time limits processor time"),
        REFUSED("vm", MACHINES),
        REFUSED("rootfs", ROOTS),
        REFUSED("container-runtime", CONTAINERS),
        REFUSED("container-image", CONTAINERS),
        REFUSED("container-rootfs", CONTAINERS),
        REFUSED("container-*", CONTAINERS),
        REFUSED("vm-*", MACHINES),
        REFUSED("rootfs-*", ROOTS),
        REFUSED("image-store", ROOTS),
        REFUSED("gateway-*", MODEL_TRAFFIC),
        { .name = "memory-pool",
          .letter = 'M',
          .type = PV_OPT_REFUSED,
          .flags = PV_OPT_HIDDEN,
          .help = "the virtual machine executor",
          .instead = ON_THIS_SYSTEM },
        REFUSED_LIMIT("container-network", "the container executor", "--overlaynet-deny-all denies all network"),
        REFUSED("tui", "a full-screen interface",
                "--detach, then `pvisor attach`, and `pvisor list --watch` in another terminal"),
        REFUSED("feature", "switches for experiments", "leave it out"),
        REFUSED("spec", "delegated execution", "--config FILE reads options from YAML; --json=FILE writes a summary"),
        REFUSED("result-file", "delegated execution", "--json=FILE writes a summary"),
        REFUSED("no-agent-defaults", "defaults of each agent", "--profile none takes no profile"),
        REFUSED("workspace-base", WORKSPACES),
        REFUSED("workspace-base-store", WORKSPACES),
        REFUSED("record-destination", "traces", "each job keeps its events: `pvisor logs --events`"),
        REFUSED("gateway-mode", MODEL_TRAFFIC),
        REFUSED("gateway-profile", MODEL_TRAFFIC),

        PV_OPT_ELSEWHERE(0, "rm", "leave it out: what was not decided on stays; `pvisor prune` removes old jobs"),
        PV_OPT_ELSEWHERE('i', "interactive", "leave it out: the command has the terminal that pvisor has"),
        PV_OPT_ELSEWHERE('t', "tty", "leave it out: the command has the terminal that pvisor has"),
        PV_OPT_ELSEWHERE('e', "env",
                         "--pass-env NAME hands on a variable of yours; `-- env NAME=VALUE COMMAND` sets one"),
        PV_OPT_ELSEWHERE(0, "env-file", "--pass-env NAME hands on a variable of yours, one by one"),
        PV_OPT_ELSEWHERE(0, "volume", "--mount SRC[:DST]:read shows a directory; :stage and :write are the other ways"),
        PV_OPT_ELSEWHERE('w', "workdir",
                         "cd there first: the command starts where you stand; --workspace DIR is staged"),
        PV_OPT_ELSEWHERE(0, "cwd", "cd there first: the command starts where you stand; --workspace DIR is staged"),
        PV_OPT_ELSEWHERE('u', "user", "leave it out: the command runs as you, without privileges"),
        PV_OPT_ELSEWHERE(0, "entrypoint", "leave it out: COMMAND is the program that is run"),
        PV_OPT_ELSEWHERE(0, "network",
                         "--overlaynet-deny-all: none; --overlaynet-allow HOST: that; --overlaynet off: all"),
        PV_OPT_ELSEWHERE(0, "net", "--overlaynet-deny-all: none; --overlaynet-allow HOST: that; --overlaynet off: all"),
        PV_OPT_ELSEWHERE(0, "cpus", "--max-cpu-time limits processor time"),
        PV_OPT_ELSEWHERE(0, "platform", ON_THIS_SYSTEM),
        PV_OPT_ELSEWHERE(0, "ip", "--publish makes a port reachable on this machine's loopback"),
        PV_OPT_ELSEWHERE(0, "read-only",
                         "leave it out: under --safe all but the workspace is read-only or thrown away"),
        PV_OPT_OUTPUT_DIR,
        { .name = NULL },
};
