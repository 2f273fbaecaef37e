/* SPDX-License-Identifier: Apache-2.0 */
#include "git/rules.h"

#include <stdlib.h>
#include <string.h>
#include "base/str.h"

/*
 * name: one component of the path; a leading '*' makes it a suffix.
 * rest: what must follow. NULL: nothing, name is the last component. BELOW: the component itself and all below it.
 *       Otherwise a path; ending in a slash it stands for all below it.
 */
static const char BELOW[] = "/";

struct rule {
        const char *name, *rest;
        enum pv_attention why;
};

/* clang-format off */
static const struct rule rules[] = {
        /* Hooks and hook managers: their files are what core.hooksPath or an installed hook points to. */
        { ".husky", BELOW, PV_ATTENTION_GIT_HOOK },
        { ".githooks", BELOW, PV_ATTENTION_GIT_HOOK },
        { ".pre-commit-config.yaml", NULL, PV_ATTENTION_GIT_HOOK },
        { "lefthook.yml", NULL, PV_ATTENTION_GIT_HOOK },
        { "lefthook.yaml", NULL, PV_ATTENTION_GIT_HOOK },
        { "lefthook.toml", NULL, PV_ATTENTION_GIT_HOOK },
        { ".lefthook", BELOW, PV_ATTENTION_GIT_HOOK },
        { ".lefthook.yml", NULL, PV_ATTENTION_GIT_HOOK },
        { ".lefthook.yaml", NULL, PV_ATTENTION_GIT_HOOK },
        { ".lefthook.toml", NULL, PV_ATTENTION_GIT_HOOK },
        { "lefthook-local.yml", NULL, PV_ATTENTION_GIT_HOOK },
        { "lefthook-local.yaml", NULL, PV_ATTENTION_GIT_HOOK },
        { "lefthook-local.toml", NULL, PV_ATTENTION_GIT_HOOK },
        { ".lefthook-local.yml", NULL, PV_ATTENTION_GIT_HOOK },
        { ".lefthook-local.yaml", NULL, PV_ATTENTION_GIT_HOOK },
        { ".lefthook-local.toml", NULL, PV_ATTENTION_GIT_HOOK },
        { ".lefthook-local", BELOW, PV_ATTENTION_GIT_HOOK },
        { ".overcommit.yml", NULL, PV_ATTENTION_GIT_HOOK },
        { ".gitconfig", NULL, PV_ATTENTION_GIT_CONFIG },
        { ".config", "git/", PV_ATTENTION_GIT_CONFIG },
        { "*.git", "config", PV_ATTENTION_GIT_CONFIG },
        { "*.git", "hooks/", PV_ATTENTION_GIT_HOOK },
        /* Only a git directory has a file of this name: whatever is beside it, git below may take it for one. */
        { "HEAD", NULL, PV_ATTENTION_NESTED_REPO },

        /* Other version control, whose configuration has hooks and programs as git's has. */
        { ".hg", BELOW, PV_ATTENTION_NESTED_REPO },
        { ".jj", BELOW, PV_ATTENTION_NESTED_REPO },
        { ".sl", BELOW, PV_ATTENTION_NESTED_REPO },

        { ".envrc", NULL, PV_ATTENTION_ENV },
        { ".direnv", BELOW, PV_ATTENTION_ENV },
        { ".config", "mise/", PV_ATTENTION_ENV },
        { ".config", "mise.toml", PV_ATTENTION_ENV },
        { ".config", "mise.local.toml", PV_ATTENTION_ENV },
        { "mise", "config.toml", PV_ATTENTION_ENV },
        { "mise", "config.local.toml", PV_ATTENTION_ENV },
        { ".mise.toml", NULL, PV_ATTENTION_ENV },
        { "mise.toml", NULL, PV_ATTENTION_ENV },
        { ".mise.local.toml", NULL, PV_ATTENTION_ENV },
        { "mise.local.toml", NULL, PV_ATTENTION_ENV },
        { ".mise", BELOW, PV_ATTENTION_ENV },
        { ".autoenv", NULL, PV_ATTENTION_ENV },
        { ".autoenv.zsh", NULL, PV_ATTENTION_ENV },

        { ".vscode", "tasks.json", PV_ATTENTION_EDITOR },
        { ".vscode", "settings.json", PV_ATTENTION_EDITOR },
        { ".vscode", "launch.json", PV_ATTENTION_EDITOR },
        { ".vscode", "mcp.json", PV_ATTENTION_AGENT },
        { ".vscode", "extensions.json", PV_ATTENTION_EDITOR },
        { "*.code-workspace", NULL, PV_ATTENTION_EDITOR },
        { ".idea", BELOW, PV_ATTENTION_EDITOR },
        { ".run", BELOW, PV_ATTENTION_EDITOR },
        { ".fleet", BELOW, PV_ATTENTION_EDITOR },
        { ".zed", BELOW, PV_ATTENTION_EDITOR },
        { ".vs", BELOW, PV_ATTENTION_EDITOR },
        { ".theia", BELOW, PV_ATTENTION_EDITOR },
        { ".devcontainer", BELOW, PV_ATTENTION_EDITOR },
        { ".devcontainer.json", NULL, PV_ATTENTION_EDITOR },
        { ".dir-locals.el", NULL, PV_ATTENTION_EDITOR },
        { ".dir-locals-2.el", NULL, PV_ATTENTION_EDITOR },
        { ".exrc", NULL, PV_ATTENTION_EDITOR },
        { ".nvimrc", NULL, PV_ATTENTION_EDITOR },
        { ".nvim.lua", NULL, PV_ATTENTION_EDITOR },
        { ".lvimrc", NULL, PV_ATTENTION_EDITOR },
        { ".vimrc", NULL, PV_ATTENTION_EDITOR },
        { ".vim", BELOW, PV_ATTENTION_EDITOR },
        { ".emacs", NULL, PV_ATTENTION_EDITOR },
        { ".emacs.d", BELOW, PV_ATTENTION_EDITOR },
        { ".config", "nvim/", PV_ATTENTION_EDITOR },
        { ".helix", BELOW, PV_ATTENTION_EDITOR },

        { ".claude", BELOW, PV_ATTENTION_AGENT },
        { ".claude.json", NULL, PV_ATTENTION_AGENT },
        { ".claude-plugin", BELOW, PV_ATTENTION_AGENT },
        { "CLAUDE.md", NULL, PV_ATTENTION_AGENT },
        { "CLAUDE.local.md", NULL, PV_ATTENTION_AGENT },
        { "AGENTS.md", NULL, PV_ATTENTION_AGENT },
        { "AGENTS.override.md", NULL, PV_ATTENTION_AGENT },
        { "AGENT.md", NULL, PV_ATTENTION_AGENT },
        { "GEMINI.md", NULL, PV_ATTENTION_AGENT },
        { "QWEN.md", NULL, PV_ATTENTION_AGENT },
        { ".mcp.json", NULL, PV_ATTENTION_AGENT },
        { "mcp.json", NULL, PV_ATTENTION_AGENT },
        { ".mcp", BELOW, PV_ATTENTION_AGENT },
        { ".agents", BELOW, PV_ATTENTION_AGENT },
        { ".agent", BELOW, PV_ATTENTION_AGENT },
        { ".codex", BELOW, PV_ATTENTION_AGENT },
        /* What the next run is allowed to do. */
        { ".config", "pvisor/", PV_ATTENTION_AGENT },
        { "pvisor", "config.yaml", PV_ATTENTION_AGENT },
        { "pvisor", "groups.yaml", PV_ATTENTION_AGENT },
        { "pvisor", "profiles/", PV_ATTENTION_AGENT },
        { ".gemini", BELOW, PV_ATTENTION_AGENT },
        { ".qwen", BELOW, PV_ATTENTION_AGENT },
        { ".cursor", BELOW, PV_ATTENTION_AGENT },
        { ".cursorrules", NULL, PV_ATTENTION_AGENT },
        { ".windsurf", BELOW, PV_ATTENTION_AGENT },
        { ".windsurfrules", NULL, PV_ATTENTION_AGENT },
        { ".clinerules", BELOW, PV_ATTENTION_AGENT },
        { ".cline", BELOW, PV_ATTENTION_AGENT },
        { ".roo", BELOW, PV_ATTENTION_AGENT },
        { ".roomodes", NULL, PV_ATTENTION_AGENT },
        { ".roorules", NULL, PV_ATTENTION_AGENT },
        { ".kilocode", BELOW, PV_ATTENTION_AGENT },
        { ".continue", BELOW, PV_ATTENTION_AGENT },
        { ".opencode", BELOW, PV_ATTENTION_AGENT },
        { "opencode.json", NULL, PV_ATTENTION_AGENT },
        { "opencode.jsonc", NULL, PV_ATTENTION_AGENT },
        { ".crush.json", NULL, PV_ATTENTION_AGENT },
        { "crush.json", NULL, PV_ATTENTION_AGENT },
        { ".crush", BELOW, PV_ATTENTION_AGENT },
        { ".aider.conf.yml", NULL, PV_ATTENTION_AGENT },
        { ".aider.model.settings.yml", NULL, PV_ATTENTION_AGENT },
        { ".goosehints", NULL, PV_ATTENTION_AGENT },
        { ".goose", BELOW, PV_ATTENTION_AGENT },
        { ".junie", BELOW, PV_ATTENTION_AGENT },
        { ".amazonq", BELOW, PV_ATTENTION_AGENT },
        { ".kiro", BELOW, PV_ATTENTION_AGENT },
        { ".trae", BELOW, PV_ATTENTION_AGENT },
        { ".augment", BELOW, PV_ATTENTION_AGENT },
        { ".augment-guidelines", NULL, PV_ATTENTION_AGENT },
        { ".rules", NULL, PV_ATTENTION_AGENT },
        { ".github", "copilot-instructions.md", PV_ATTENTION_AGENT },
        { ".github", "instructions/", PV_ATTENTION_AGENT },
        { ".github", "prompts/", PV_ATTENTION_AGENT },
        { ".github", "chatmodes/", PV_ATTENTION_AGENT },
        { ".github", "agents/", PV_ATTENTION_AGENT },

        { ".bashrc", NULL, PV_ATTENTION_SHELL },
        { ".bash_profile", NULL, PV_ATTENTION_SHELL },
        { ".bash_login", NULL, PV_ATTENTION_SHELL },
        { ".bash_logout", NULL, PV_ATTENTION_SHELL },
        { ".bash_aliases", NULL, PV_ATTENTION_SHELL },
        { ".profile", NULL, PV_ATTENTION_SHELL },
        { ".zshrc", NULL, PV_ATTENTION_SHELL },
        { ".zshenv", NULL, PV_ATTENTION_SHELL },
        { ".zprofile", NULL, PV_ATTENTION_SHELL },
        { ".zlogin", NULL, PV_ATTENTION_SHELL },
        { ".zlogout", NULL, PV_ATTENTION_SHELL },
        { ".kshrc", NULL, PV_ATTENTION_SHELL },
        { ".cshrc", NULL, PV_ATTENTION_SHELL },
        { ".tcshrc", NULL, PV_ATTENTION_SHELL },
        { ".login", NULL, PV_ATTENTION_SHELL },
        { ".xinitrc", NULL, PV_ATTENTION_SHELL },
        { ".xprofile", NULL, PV_ATTENTION_SHELL },
        { ".xsession", NULL, PV_ATTENTION_SHELL },
        { ".xsessionrc", NULL, PV_ATTENTION_SHELL },
        { ".pam_environment", NULL, PV_ATTENTION_SHELL },
        { ".ssh", BELOW, PV_ATTENTION_SHELL },
        { ".tmux.conf", NULL, PV_ATTENTION_SHELL },
        { ".gdbinit", NULL, PV_ATTENTION_SHELL },
        { ".lldbinit", NULL, PV_ATTENTION_SHELL },
        /* Interpreters and debuggers that read what lies where they are started. */
        { ".Rprofile", NULL, PV_ATTENTION_SHELL },
        { ".Renviron", NULL, PV_ATTENTION_SHELL },
        { ".ghci", NULL, PV_ATTENTION_SHELL },
        { ".iex.exs", NULL, PV_ATTENTION_SHELL },
        { ".ocamlinit", NULL, PV_ATTENTION_SHELL },
        { ".octaverc", NULL, PV_ATTENTION_SHELL },
        { ".erlang", NULL, PV_ATTENTION_SHELL },
        { ".pdbrc", NULL, PV_ATTENTION_SHELL },
        { ".perldb", NULL, PV_ATTENTION_SHELL },
        { ".irbrc", NULL, PV_ATTENTION_SHELL },
        { ".pryrc", NULL, PV_ATTENTION_SHELL },
        { ".pythonrc", NULL, PV_ATTENTION_SHELL },
        { "sitecustomize.py", NULL, PV_ATTENTION_SHELL },
        { "usercustomize.py", NULL, PV_ATTENTION_SHELL },
        { ".config", "fish/", PV_ATTENTION_SHELL },
        { ".config", "autostart/", PV_ATTENTION_SHELL },
        { ".config", "systemd/", PV_ATTENTION_SHELL },
        { ".config", "environment.d/", PV_ATTENTION_SHELL },

        { ".github", "workflows/", PV_ATTENTION_CI },
        { ".github", "actions/", PV_ATTENTION_CI },
        { ".github", "dependabot.yml", PV_ATTENTION_CI },
        { ".gitlab-ci.yml", NULL, PV_ATTENTION_CI },
        { ".gitlab", BELOW, PV_ATTENTION_CI },
        { ".gitea", "workflows/", PV_ATTENTION_CI },
        { ".forgejo", "workflows/", PV_ATTENTION_CI },
        { ".woodpecker.yml", NULL, PV_ATTENTION_CI },
        { ".woodpecker", BELOW, PV_ATTENTION_CI },
        { "Jenkinsfile", NULL, PV_ATTENTION_CI },
        { ".circleci", BELOW, PV_ATTENTION_CI },
        { "azure-pipelines.yml", NULL, PV_ATTENTION_CI },
        { ".azure-pipelines", BELOW, PV_ATTENTION_CI },
        { ".travis.yml", NULL, PV_ATTENTION_CI },
        { ".drone.yml", NULL, PV_ATTENTION_CI },
        { ".cirrus.yml", NULL, PV_ATTENTION_CI },
        { ".appveyor.yml", NULL, PV_ATTENTION_CI },
        { "appveyor.yml", NULL, PV_ATTENTION_CI },
        { "bitbucket-pipelines.yml", NULL, PV_ATTENTION_CI },
        { ".buildkite", BELOW, PV_ATTENTION_CI },
        { ".teamcity", BELOW, PV_ATTENTION_CI },
        { "cloudbuild.yaml", NULL, PV_ATTENTION_CI },
        { "buildspec.yml", NULL, PV_ATTENTION_CI },
        { ".build.yml", NULL, PV_ATTENTION_CI },
        { ".ci", BELOW, PV_ATTENTION_CI },
        { "netlify.toml", NULL, PV_ATTENTION_CI },
        { "vercel.json", NULL, PV_ATTENTION_CI },
        { "CODEOWNERS", NULL, PV_ATTENTION_CI },

        { "Makefile", NULL, PV_ATTENTION_BUILD },
        { "makefile", NULL, PV_ATTENTION_BUILD },
        { "GNUmakefile", NULL, PV_ATTENTION_BUILD },
        { "*.mk", NULL, PV_ATTENTION_BUILD },
        { "CMakeLists.txt", NULL, PV_ATTENTION_BUILD },
        { "*.cmake", NULL, PV_ATTENTION_BUILD },
        { "CMakePresets.json", NULL, PV_ATTENTION_BUILD },
        { "meson.build", NULL, PV_ATTENTION_BUILD },
        { "build.ninja", NULL, PV_ATTENTION_BUILD },
        { "configure", NULL, PV_ATTENTION_BUILD },
        { "configure.ac", NULL, PV_ATTENTION_BUILD },
        { "SConstruct", NULL, PV_ATTENTION_BUILD },
        { "SConscript", NULL, PV_ATTENTION_BUILD },
        { "wscript", NULL, PV_ATTENTION_BUILD },
        { "justfile", NULL, PV_ATTENTION_BUILD },
        { "Justfile", NULL, PV_ATTENTION_BUILD },
        { ".justfile", NULL, PV_ATTENTION_BUILD },
        { "Taskfile.yml", NULL, PV_ATTENTION_BUILD },
        { "Taskfile.yaml", NULL, PV_ATTENTION_BUILD },
        { "Rakefile", NULL, PV_ATTENTION_BUILD },
        { "Gemfile", NULL, PV_ATTENTION_BUILD },
        { "*.gemspec", NULL, PV_ATTENTION_BUILD },
        { "setup.py", NULL, PV_ATTENTION_BUILD },
        { "setup.cfg", NULL, PV_ATTENTION_BUILD },
        { "pyproject.toml", NULL, PV_ATTENTION_BUILD },
        { "conftest.py", NULL, PV_ATTENTION_BUILD },
        { "noxfile.py", NULL, PV_ATTENTION_BUILD },
        { "tox.ini", NULL, PV_ATTENTION_BUILD },
        { "pytest.ini", NULL, PV_ATTENTION_BUILD },
        { "tasks.py", NULL, PV_ATTENTION_BUILD },
        { "build.rs", NULL, PV_ATTENTION_BUILD },
        { "Cargo.toml", NULL, PV_ATTENTION_BUILD },
        { "build.gradle", NULL, PV_ATTENTION_BUILD },
        { "build.gradle.kts", NULL, PV_ATTENTION_BUILD },
        { "settings.gradle", NULL, PV_ATTENTION_BUILD },
        { "settings.gradle.kts", NULL, PV_ATTENTION_BUILD },
        { "gradlew", NULL, PV_ATTENTION_BUILD },
        { "gradle", "wrapper/", PV_ATTENTION_BUILD },
        { "pom.xml", NULL, PV_ATTENTION_BUILD },
        { "mvnw", NULL, PV_ATTENTION_BUILD },
        { ".mvn", BELOW, PV_ATTENTION_BUILD },
        { "build.xml", NULL, PV_ATTENTION_BUILD },
        { "build.sbt", NULL, PV_ATTENTION_BUILD },
        { "build.zig", NULL, PV_ATTENTION_BUILD },
        { "mix.exs", NULL, PV_ATTENTION_BUILD },
        { "Package.swift", NULL, PV_ATTENTION_BUILD },
        { "WORKSPACE", NULL, PV_ATTENTION_BUILD },
        { "MODULE.bazel", NULL, PV_ATTENTION_BUILD },
        { "BUILD.bazel", NULL, PV_ATTENTION_BUILD },
        { "*.bzl", NULL, PV_ATTENTION_BUILD },
        { ".bazelrc", NULL, PV_ATTENTION_BUILD },
        { "flake.nix", NULL, PV_ATTENTION_BUILD },
        { "shell.nix", NULL, PV_ATTENTION_BUILD },
        { "default.nix", NULL, PV_ATTENTION_BUILD },
        { "Dockerfile", NULL, PV_ATTENTION_BUILD },
        { "Containerfile", NULL, PV_ATTENTION_BUILD },
        { "*.dockerfile", NULL, PV_ATTENTION_BUILD },
        { "docker-compose.yml", NULL, PV_ATTENTION_BUILD },
        { "docker-compose.yaml", NULL, PV_ATTENTION_BUILD },
        { "compose.yml", NULL, PV_ATTENTION_BUILD },
        { "compose.yaml", NULL, PV_ATTENTION_BUILD },
        { "Vagrantfile", NULL, PV_ATTENTION_BUILD },
        { "Procfile", NULL, PV_ATTENTION_BUILD },
        { "*.csproj", NULL, PV_ATTENTION_BUILD },
        { "Directory.Build.props", NULL, PV_ATTENTION_BUILD },
        { "Directory.Build.targets", NULL, PV_ATTENTION_BUILD },
        { "Gruntfile.js", NULL, PV_ATTENTION_BUILD },
        { "gulpfile.js", NULL, PV_ATTENTION_BUILD },
        { "vite.config.js", NULL, PV_ATTENTION_BUILD },
        { "vite.config.ts", NULL, PV_ATTENTION_BUILD },
        { "webpack.config.js", NULL, PV_ATTENTION_BUILD },
        { "jest.config.js", NULL, PV_ATTENTION_BUILD },
        { "jest.config.ts", NULL, PV_ATTENTION_BUILD },
        { "*.pth", NULL, PV_ATTENTION_BUILD },

        { ".npmrc", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".yarnrc", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".yarnrc.yml", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".yarn", "releases/", PV_ATTENTION_TOOL_CONFIG },
        { ".yarn", "plugins/", PV_ATTENTION_TOOL_CONFIG },
        { ".pnpmfile.cjs", NULL, PV_ATTENTION_TOOL_CONFIG },
        { "pnpm-workspace.yaml", NULL, PV_ATTENTION_TOOL_CONFIG },
        { "bunfig.toml", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".cargo", BELOW, PV_ATTENTION_TOOL_CONFIG },
        { "rust-toolchain.toml", NULL, PV_ATTENTION_TOOL_CONFIG },
        { "pip.conf", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".pypirc", NULL, PV_ATTENTION_TOOL_CONFIG },
        { "nuget.config", NULL, PV_ATTENTION_TOOL_CONFIG },
        { "gradle.properties", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".tool-versions", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".nvmrc", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".pvisor.yaml", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".pvisor.yml", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".env", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".netrc", NULL, PV_ATTENTION_TOOL_CONFIG },
        { ".eslintrc.js", NULL, PV_ATTENTION_TOOL_CONFIG },
        { "eslint.config.js", NULL, PV_ATTENTION_TOOL_CONFIG },

        { ".gitattributes", NULL, PV_ATTENTION_GIT_SETTING },
        { ".gitmodules", NULL, PV_ATTENTION_GIT_SETTING },
        { ".lfsconfig", NULL, PV_ATTENTION_GIT_SETTING },

        { "package-lock.json", NULL, PV_ATTENTION_LOCKFILE },
        { "npm-shrinkwrap.json", NULL, PV_ATTENTION_LOCKFILE },
        { "yarn.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "pnpm-lock.yaml", NULL, PV_ATTENTION_LOCKFILE },
        { "bun.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "bun.lockb", NULL, PV_ATTENTION_LOCKFILE },
        { "deno.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "Cargo.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "go.sum", NULL, PV_ATTENTION_LOCKFILE },
        { "go.mod", NULL, PV_ATTENTION_LOCKFILE },
        { "poetry.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "uv.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "pdm.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "Pipfile.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "requirements.txt", NULL, PV_ATTENTION_LOCKFILE },
        { "Gemfile.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "composer.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "mix.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "flake.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "pubspec.lock", NULL, PV_ATTENTION_LOCKFILE },
        { "packages.lock.json", NULL, PV_ATTENTION_LOCKFILE },
        { "gradle.lockfile", NULL, PV_ATTENTION_LOCKFILE },
        { "Package.resolved", NULL, PV_ATTENTION_LOCKFILE },
        { "Podfile.lock", NULL, PV_ATTENTION_LOCKFILE },
};
/* clang-format on */

enum { N_RULES = sizeof rules / sizeof *rules };

struct pv_rules {
        size_t n_exact, n_suffix;
        const struct rule *exact[N_RULES], *suffix[N_RULES];
};

static int by_name(const void *a, const void *b)
{
        const struct rule *const *x = a, *const *y = b;
        return strcmp((*x)->name, (*y)->name);
}

struct pv_rules *pv_rules_new(void)
{
        struct pv_rules *r = pv_calloc(1, sizeof *r);
        for (size_t i = 0; i < N_RULES; i++) {
                if (rules[i].name[0] == '*')
                        r->suffix[r->n_suffix++] = &rules[i];
                else
                        r->exact[r->n_exact++] = &rules[i];
        }
        qsort(r->exact, r->n_exact, sizeof *r->exact, by_name);
        return r;
}

void pv_rules_free(struct pv_rules *r)
{
        free(r);
}

/* Length of what of the path names the rule's subject, or 0: at..at+len is the component that bears the name. */
static size_t match_rest(const struct rule *r, const char *path, size_t at, size_t len)
{
        const char *after = path + at + len; /* "" or "/..." */
        if (!r->rest)
                return *after ? 0 : at + len;
        if (r->rest == BELOW)
                return at + len;
        if (*after != '/')
                return 0;
        size_t n = strlen(r->rest);
        if (r->rest[n - 1] != '/')
                return pv_streq(after + 1, r->rest) ? at + len + 1 + n : 0;
        if (strncmp(after + 1, r->rest, n - 1) != 0 || (after[n] != '/' && after[n] != '\0'))
                return 0;
        return at + len + n;
}

static void consider(const struct rule *r, const char *path, size_t at, size_t len, uint64_t *reasons, size_t *anchor)
{
        size_t matched = match_rest(r, path, at, len);
        if (!matched)
                return;
        *reasons |= PV_ATTENTION_BIT(r->why);
        if (pv_attention_info(r->why)->host_runs && (*anchor == 0 || matched < *anchor))
                *anchor = matched;
}

/* The first of the sorted rules whose name is not below the component's. */
static size_t lower_bound(const struct pv_rules *r, const char *name, size_t len)
{
        size_t lo = 0, hi = r->n_exact;
        while (lo < hi) {
                size_t mid = lo + (hi - lo) / 2;
                const char *other = r->exact[mid]->name;
                int c = strncmp(other, name, len);
                if (c < 0)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo;
}

static void match_component(const struct pv_rules *r, const char *path, size_t at, size_t len, uint64_t *reasons,
                            size_t *anchor)
{
        const char *name = path + at;
        for (size_t i = lower_bound(r, name, len); i < r->n_exact; i++) {
                if (strncmp(r->exact[i]->name, name, len) != 0)
                        break;
                if (r->exact[i]->name[len] == '\0')
                        consider(r->exact[i], path, at, len, reasons, anchor);
        }
        for (size_t i = 0; i < r->n_suffix; i++) {
                const char *suffix = r->suffix[i]->name + 1;
                size_t n = strlen(suffix);
                if (len > n && memcmp(name + len - n, suffix, n) == 0)
                        consider(r->suffix[i], path, at, len, reasons, anchor);
        }
}

uint64_t pv_rules_match(const struct pv_rules *r, const char *path, size_t *anchor_len)
{
        uint64_t reasons = 0;
        size_t anchor = 0;
        for (size_t at = 0; path[at];) {
                size_t len = strcspn(path + at, "/");
                match_component(r, path, at, len, &reasons, &anchor);
                at += len;
                at += path[at] == '/';
        }
        if (anchor)
                *anchor_len = anchor;
        return reasons;
}
