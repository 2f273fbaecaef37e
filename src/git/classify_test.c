/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "git/classify.h"

#include <string.h>
#include <sys/stat.h>
#include "git/gitdir.h"
#include "git/judge.h"

static struct pv_path_change file(const char *path, enum pv_path_kind kind)
{
        return (struct pv_path_change){ .root_view = "/w",
                                        .path = path,
                                        .kind = kind,
                                        .old_mode = kind == PV_PATH_ADDED ? 0 : S_IFREG | 0644,
                                        .new_mode = kind == PV_PATH_DELETED ? 0 : S_IFREG | 0644 };
}

static struct pv_verdict judge(struct pv_path_change c)
{
        struct pv_verdict v = { 0 };
        pv_classify(&c, 1, NULL, &v);
        return v;
}

static void parts_of_a_git_directory(void **state)
{
        static const struct {
                const char *path;
                enum pv_git_part part;
        } cases[] = {
                { ".git", PV_GIT_DIR },
                { ".git/HEAD", PV_GIT_HEAD },
                { ".git/objects/ab/cdef", PV_GIT_OBJECTS },
                { ".git/objects/info/alternates", PV_GIT_ALTERNATES },
                { ".git/refs/heads/main", PV_GIT_REFS },
                { ".git/packed-refs", PV_GIT_PACKED_REFS },
                { ".git/index", PV_GIT_INDEX },
                { ".git/index.lock", PV_GIT_LOCK },
                { ".git/sharedindex.1234", PV_GIT_INDEX },
                { ".git/logs/HEAD", PV_GIT_LOGS },
                { ".git/config", PV_GIT_CONFIG },
                { ".git/config.worktree", PV_GIT_CONFIG },
                { ".git/commondir", PV_GIT_CONFIG },
                { ".git/hooks", PV_GIT_HOOKS },
                { ".git/hooks/pre-commit", PV_GIT_HOOKS },
                { ".git/hooks/x.lock", PV_GIT_HOOKS },
                { ".git/info/exclude", PV_GIT_INFO },
                { ".git/MERGE_HEAD", PV_GIT_OPERATION },
                { ".git/COMMIT_EDITMSG", PV_GIT_OPERATION },
                { ".git/rebase-merge/done", PV_GIT_OPERATION },
                { ".git/worktrees/x", PV_GIT_WORKTREES },
                { ".git/worktrees/x/HEAD", PV_GIT_HEAD },
                { ".git/worktrees/x/index", PV_GIT_INDEX },
                { ".git/worktrees/x/config.worktree", PV_GIT_CONFIG },
                { ".git/worktrees/x/gitdir", PV_GIT_CONFIG },
                { ".git/worktrees/x/modules/lib/hooks/pre-commit", PV_GIT_HOOKS },
                { ".git/worktrees/x/modules/lib/config", PV_GIT_CONFIG },
                { ".git/worktrees/x/modules/lib/refs/heads/main", PV_GIT_REFS },
                { ".git/worktrees/modules/HEAD", PV_GIT_HEAD },
                { ".git/modules/lib/objects/ab/cd", PV_GIT_OBJECTS },
                { ".git/modules/lib/config", PV_GIT_CONFIG },
                { ".git/modules/a/b/hooks/post-checkout", PV_GIT_HOOKS },
                { ".git/modules/objects/config", PV_GIT_CONFIG },
                { ".git/modules/objects/hooks/pre-push", PV_GIT_HOOKS },
                { ".git/description", PV_GIT_OTHER },
                { "vendor/lib/.git/config", PV_GIT_CONFIG },
                { "x/.GIT/hooks/pre-commit", PV_GIT_HOOKS },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct pv_verdict v = judge(file(cases[i].path, PV_PATH_MODIFIED));
                assert_int_equal(v.place, PV_PLACE_GIT);
                if (v.part != cases[i].part)
                        fail_msg("%s is %s", cases[i].path, pv_git_part_name(v.part));
        }
        assert_int_equal(judge(file(".github/x", PV_PATH_ADDED)).place, PV_PLACE_TREE);
        assert_int_equal(judge(file(".gitignore", PV_PATH_ADDED)).place, PV_PLACE_TREE);
        assert_int_equal(judge(file("a.git/x", PV_PATH_ADDED)).place, PV_PLACE_TREE);
        assert_int_equal(judge(file("vendor/.git/config", PV_PATH_ADDED)).gitdir_len, strlen("vendor/.git"));
}

static void a_root_that_is_a_git_directory(void **state)
{
        struct pv_path_change c = file("worktrees/x/index", PV_PATH_MODIFIED);
        c.root_kind = PV_ROOT_GIT_DIR;
        c.root = 1;
        assert_int_equal(judge(c).part, PV_GIT_INDEX);
        c.path = "hooks/pre-commit";
        struct pv_verdict v = judge(c);
        assert_int_equal(v.place, PV_PLACE_GIT);
        assert_int_equal(v.gitdir_len, 0);
        assert_true(v.reasons & PV_ATTENTION_BIT(PV_ATTENTION_GIT_HOOK));
        assert_int_equal(v.anchor_len, strlen("hooks"));
}

static void names_that_run(void **state)
{
        static const struct {
                const char *path;
                enum pv_attention why;
                const char *anchor; /* NULL: only to be looked at */
        } cases[] = {
                { ".git/hooks/pre-commit", PV_ATTENTION_GIT_HOOK, ".git/hooks" },
                { ".git/config", PV_ATTENTION_GIT_CONFIG, ".git/config" },
                { ".husky/pre-commit", PV_ATTENTION_GIT_HOOK, ".husky" },
                { "sub/.envrc", PV_ATTENTION_ENV, "sub/.envrc" },
                { ".vscode/tasks.json", PV_ATTENTION_EDITOR, ".vscode/tasks.json" },
                { "a/.vscode/settings.json", PV_ATTENTION_EDITOR, "a/.vscode/settings.json" },
                { ".idea/runConfigurations/x.xml", PV_ATTENTION_EDITOR, ".idea" },
                { ".devcontainer/devcontainer.json", PV_ATTENTION_EDITOR, ".devcontainer" },
                { ".claude/settings.json", PV_ATTENTION_AGENT, ".claude" },
                { "CLAUDE.md", PV_ATTENTION_AGENT, "CLAUDE.md" },
                { "AGENTS.md", PV_ATTENTION_AGENT, "AGENTS.md" },
                { ".mcp.json", PV_ATTENTION_AGENT, ".mcp.json" },
                { "dotfiles/.config/pvisor/profiles/claude.yaml", PV_ATTENTION_AGENT, "dotfiles/.config/pvisor" },
                { "pvisor/profiles/claude.yaml", PV_ATTENTION_AGENT, "pvisor/profiles" },
                { ".cursor/rules/x.mdc", PV_ATTENTION_AGENT, ".cursor" },
                { ".codex/config.toml", PV_ATTENTION_AGENT, ".codex" },
                { ".gemini/settings.json", PV_ATTENTION_AGENT, ".gemini" },
                { ".github/copilot-instructions.md", PV_ATTENTION_AGENT, ".github/copilot-instructions.md" },
                { ".github/agents/x.md", PV_ATTENTION_AGENT, ".github/agents" },
                { ".bashrc", PV_ATTENTION_SHELL, ".bashrc" },
                { ".config/fish/config.fish", PV_ATTENTION_SHELL, ".config/fish" },
                { "x/HEAD", PV_ATTENTION_NESTED_REPO, "x/HEAD" },
                { "x.git/config", PV_ATTENTION_GIT_CONFIG, "x.git/config" },
                { ".github/workflows/ci.yml", PV_ATTENTION_CI, NULL },
                { ".gitlab-ci.yml", PV_ATTENTION_CI, NULL },
                { "Jenkinsfile", PV_ATTENTION_CI, NULL },
                { "azure-pipelines.yml", PV_ATTENTION_CI, NULL },
                { ".circleci/config.yml", PV_ATTENTION_CI, NULL },
                { "Makefile", PV_ATTENTION_BUILD, NULL },
                { "deep/in/CMakeLists.txt", PV_ATTENTION_BUILD, NULL },
                { "rules.mk", PV_ATTENTION_BUILD, NULL },
                { "justfile", PV_ATTENTION_BUILD, NULL },
                { "setup.py", PV_ATTENTION_BUILD, NULL },
                { "build.rs", PV_ATTENTION_BUILD, NULL },
                { "tests/conftest.py", PV_ATTENTION_BUILD, NULL },
                { "package.json", PV_ATTENTION_PACKAGE_SCRIPTS, NULL },
                { "package-lock.json", PV_ATTENTION_LOCKFILE, NULL },
                { "Cargo.lock", PV_ATTENTION_LOCKFILE, NULL },
                { ".npmrc", PV_ATTENTION_TOOL_CONFIG, NULL },
                { ".gitmodules", PV_ATTENTION_GIT_SETTING, NULL },
                { ".git/objects/info/alternates", PV_ATTENTION_GIT_SETTING, NULL },
                { ".git/info/attributes", PV_ATTENTION_GIT_SETTING, NULL },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct pv_verdict v = judge(file(cases[i].path, PV_PATH_MODIFIED));
                const char *anchor = cases[i].anchor ? cases[i].anchor : "";
                if (!(v.reasons & PV_ATTENTION_BIT(cases[i].why)))
                        fail_msg("%s does not get %s", cases[i].path, pv_attention_info(cases[i].why)->name);
                assert_int_equal(pv_attention_host_runs(v.reasons), cases[i].anchor != NULL);
                if (v.anchor_len != strlen(anchor))
                        fail_msg("%s has an anchor of %zu", cases[i].path, v.anchor_len);
        }
}

static void ordinary_names_get_no_attention(void **state)
{
        static const char *const paths[] = {
                "src/main.c",      "README.md",          "Makefile.am.txt", "xMakefile",        "claude/x",
                ".github/FUNDING", ".vscode/x.json",     ".config/foo",     "docs/AGENTS.txt",  "mk",
                "config",          ".git/objects/ab/cd", ".git/index",      ".git/refs/heads/x"
        };
        for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
                if (judge(file(paths[i], PV_PATH_MODIFIED)).reasons)
                        fail_msg("%s gets attention", paths[i]);
        assert_int_equal(judge(file(".git/hooks/pre-commit.sample", PV_PATH_ADDED)).reasons, 0);
}

static void a_deletion_runs_nothing(void **state)
{
        assert_int_equal(judge(file(".envrc", PV_PATH_DELETED)).reasons, 0);
        assert_int_equal(judge(file(".claude/settings.json", PV_PATH_DELETED)).reasons,
                         PV_ATTENTION_BIT(PV_ATTENTION_GUARD_REMOVED));
        assert_int_equal(judge(file(".git/hooks/pre-commit", PV_PATH_DELETED)).reasons,
                         PV_ATTENTION_BIT(PV_ATTENTION_GUARD_REMOVED));
        assert_int_equal(judge(file("Makefile", PV_PATH_DELETED)).reasons, 0);
}

static void modes_and_types(void **state)
{
        struct pv_path_change c = file("tool", PV_PATH_METADATA);
        c.new_mode = S_IFREG | 0755;
        assert_int_equal(judge(c).reasons, PV_ATTENTION_BIT(PV_ATTENTION_EXECUTABLE));
        c.new_mode = S_IFREG | 04644;
        assert_int_equal(judge(c).reasons, PV_ATTENTION_BIT(PV_ATTENTION_SETUID));
        c.new_mode = S_IFREG | 0644;
        c.capable = true;
        assert_int_equal(judge(c).reasons, PV_ATTENTION_BIT(PV_ATTENTION_SETUID));
        c.capable = false;
        c.old_mode = S_IFREG | 0755;
        c.new_mode = S_IFREG | 0755;
        c.kind = PV_PATH_MODIFIED;
        assert_int_equal(judge(c).reasons, 0);
        c.split = true;
        assert_int_equal(judge(c).reasons, PV_ATTENTION_BIT(PV_ATTENTION_SPLIT_LINK));
        c = file("pipe", PV_PATH_ADDED);
        c.new_mode = S_IFIFO | 0644;
        assert_int_equal(judge(c).reasons, PV_ATTENTION_BIT(PV_ATTENTION_SPECIAL_FILE));
        c = file("Makefile", PV_PATH_METADATA);
        c.times_only = true;
        assert_int_equal(judge(c).reasons, 0);
}

static void links_that_leave(void **state)
{
        assert_true(pv_link_leaves("/w", "a/l", "../../x"));
        assert_true(pv_link_leaves("/w", "l", "/etc/passwd"));
        assert_true(pv_link_leaves("/w", "l", "/wx"));
        assert_true(pv_link_leaves("/w", "l", "/w/x/../../etc"));
        assert_true(pv_link_leaves("/w", "l", ".."));
        assert_true(pv_link_leaves("/w", "a/l", "b/../../x")); /* b may be a link */
        assert_false(pv_link_leaves("/w", "a/b/l", "../../x"));
        assert_false(pv_link_leaves("/w", "a/l", "../b..c/x"));
        assert_false(pv_link_leaves("/w", "l", "/w/x"));
        assert_false(pv_link_leaves("/w", "l", "./x"));
        struct pv_path_change c = file("l", PV_PATH_ADDED);
        c.new_mode = S_IFLNK | 0777;
        c.link = "/etc";
        assert_int_equal(judge(c).reasons, PV_ATTENTION_BIT(PV_ATTENTION_LINK_LEAVES));
}

static void a_git_directory_of_its_own(void **state)
{
        struct pv_path_change c[] = { file("v/.git", PV_PATH_ADDED), file("v/.git/config", PV_PATH_ADDED),
                                      file("v/.git/hooks/post-checkout", PV_PATH_ADDED),
                                      file("w/.git/config", PV_PATH_MODIFIED) };
        struct pv_verdict v[4] = { 0 };
        c[0].new_mode = S_IFDIR | 0755;
        pv_classify(c, 4, NULL, v);
        assert_int_equal(v[0].reasons, PV_ATTENTION_BIT(PV_ATTENTION_NESTED_REPO));
        assert_int_equal(v[1].reasons, PV_ATTENTION_BIT(PV_ATTENTION_NESTED_REPO));
        assert_int_equal(v[2].reasons, PV_ATTENTION_BIT(PV_ATTENTION_GIT_HOOK));
        assert_int_equal(v[3].reasons, PV_ATTENTION_BIT(PV_ATTENTION_GIT_CONFIG));
        struct pv_path_change replaced = file(".git", PV_PATH_TYPE);
        replaced.old_mode = S_IFDIR | 0755;
        assert_int_equal(judge(replaced).reasons, PV_ATTENTION_BIT(PV_ATTENTION_GIT_REPLACED));
        assert_int_equal(judge(file(".git", PV_PATH_MODIFIED)).reasons, PV_ATTENTION_BIT(PV_ATTENTION_GIT_REPLACED));
}

struct manifest {
        const char *old, *now;
};

static int read_manifest(void *ctx, size_t index, bool old, size_t max, char **out, size_t *len)
{
        const struct manifest *m = ctx;
        const char *text = old ? m->old : m->now;
        if (!text)
                return -1;
        *out = pv_strdup(text);
        *len = strlen(text);
        return 0;
}

static bool scripts_flagged(const char *old, const char *now)
{
        struct manifest m = { old, now };
        struct pv_classify_context context = { .read = read_manifest, .ctx = &m };
        struct pv_path_change c = file("web/package.json", old ? PV_PATH_MODIFIED : PV_PATH_ADDED);
        struct pv_verdict v = { 0 };
        pv_classify(&c, 1, &context, &v);
        return v.reasons & PV_ATTENTION_BIT(PV_ATTENTION_PACKAGE_SCRIPTS);
}

static void package_scripts_only_when_they_changed(void **state)
{
        assert_false(scripts_flagged("{\"scripts\":{\"a\":\"x\"},\"version\":\"1\"}",
                                     "{\"version\":\"2\",\"scripts\":{\"a\":\"x\"}}"));
        assert_true(scripts_flagged("{\"scripts\":{\"a\":\"x\"}}", "{\"scripts\":{\"a\":\"y\"}}"));
        assert_true(scripts_flagged("{}", "{\"scripts\":{\"postinstall\":\"y\"}}"));
        assert_true(scripts_flagged("{\"scripts\":{\"test\":\"y\"}}", "{}"));
        assert_true(scripts_flagged("{}", "not json"));
        assert_false(scripts_flagged(NULL, "{}"));
        assert_true(scripts_flagged(NULL, "{\"scripts\":{\"postinstall\":\"y\"}}"));
}

static void configured_hooks_path(void **state)
{
        struct pv_configured configured = { 0 };
        pv_strv_add(&configured.hooks, "tools/hooks");
        struct pv_classify_context context = { .configured = &configured };
        struct pv_path_change c = file("tools/hooks/pre-push", PV_PATH_ADDED);
        struct pv_verdict v = { 0 };
        pv_classify(&c, 1, &context, &v);
        assert_true(v.reasons & PV_ATTENTION_BIT(PV_ATTENTION_GIT_HOOK));
        assert_int_equal(v.anchor_len, strlen("tools/hooks"));
        c.path = "tools/hooks2/x";
        pv_classify(&c, 1, &context, &v);
        assert_int_equal(v.reasons, 0);
        pv_strv_add(&configured.programs, "tools/hooks2/x");
        pv_classify(&c, 1, &context, &v);
        assert_int_equal(v.reasons, PV_ATTENTION_BIT(PV_ATTENTION_GIT_HOOK));
        assert_int_equal(v.anchor_len, strlen("tools/hooks2/x"));
        pv_strv_add(&configured.files, "tools/more");
        c.path = "tools/more";
        pv_classify(&c, 1, &context, &v);
        assert_int_equal(v.reasons, PV_ATTENTION_BIT(PV_ATTENTION_GIT_CONFIG));
        c.path = "tools/hooks2/y";
        pv_strv_add(&configured.hooks, ""); /* the workspace itself */
        pv_classify(&c, 1, &context, &v);
        assert_int_equal(v.reasons, 0);
        c.path = "post-checkout";
        pv_classify(&c, 1, &context, &v);
        assert_int_equal(v.reasons, PV_ATTENTION_BIT(PV_ATTENTION_GIT_HOOK));
        pv_configured_fini(&configured);
}

static void each_reason_fits_a_line(void **state)
{
        for (int a = 0; a < PV_ATTENTIONS; a++) {
                const struct pv_attention_info *info = pv_attention_info((enum pv_attention)a);
                assert_non_null(info->name);
                if (strlen(info->title) + strlen(info->reason) + strlen("  ! ") + strlen(" - ") > 80)
                        fail_msg("%s", info->name);
        }
}

static void folding(void **state)
{
        struct pv_path_change c[] = { file("node_modules/a/x", PV_PATH_ADDED),
                                      file("node_modules/b", PV_PATH_ADDED),
                                      file("p/a/dist/x", PV_PATH_ADDED),
                                      file("p/a/dist/y", PV_PATH_DELETED),
                                      file("q/z.o", PV_PATH_ADDED),
                                      file("top.log", PV_PATH_MODIFIED),
                                      file("src/a.c", PV_PATH_MODIFIED) };
        struct pv_verdict v[7] = { 0 };
        static const size_t len[] = { 12, 12, 8, 8, 5, 7 };
        for (size_t i = 0; i < 6; i++) {
                c[i].size = 10;
                v[i].ignored = true;
                v[i].ignored_len = len[i];
        }
        pv_auto_free struct pv_fold *fold = NULL;
        size_t n = 0;
        pv_fold_ignored(c, v, 7, &fold, &n);
        assert_int_equal(n, 4);
        assert_int_equal(fold[0].len, strlen("node_modules"));
        assert_int_equal(fold[0].n, 2);
        assert_int_equal(fold[0].size, 20);
        assert_int_equal(fold[1].len, strlen("p/a/dist"));
        assert_int_equal(fold[1].n_deleted, 1);
        assert_int_equal(fold[1].size, 10);
        assert_int_equal(fold[2].len, strlen("q/z.o"));
        assert_int_equal(fold[3].len, strlen("top.log"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(parts_of_a_git_directory),
                cmocka_unit_test(a_root_that_is_a_git_directory),
                cmocka_unit_test(names_that_run),
                cmocka_unit_test(ordinary_names_get_no_attention),
                cmocka_unit_test(a_deletion_runs_nothing),
                cmocka_unit_test(modes_and_types),
                cmocka_unit_test(links_that_leave),
                cmocka_unit_test(a_git_directory_of_its_own),
                cmocka_unit_test(package_scripts_only_when_they_changed),
                cmocka_unit_test(configured_hooks_path),
                cmocka_unit_test(each_reason_fits_a_line),
                cmocka_unit_test(folding),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
