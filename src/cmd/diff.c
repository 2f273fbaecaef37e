/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `pvisor diff`: the job's changes to the workspace as a patch.
 *
 * Not on a terminal the patch is raw bytes that `git apply` takes; what no patch can say (binary and large files,
 * owners, pipes, what was left out) stands between as lines beginning with "#", which git passes over. On a terminal
 * the same lines come with their contents made harmless, in colours, paged.
 *
 * A git directory is left out as a whole - `git apply` refuses such paths, and `review` tells it in git's words - as
 * are ignored files, unless a PATH names them.
 */
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "cmd/command.h"
#include "cmd/diff_file.h"
#include "cmd/jobs.h"
#include "cmd/look.h"
#include "cmd/quote.h"
#include "cmd/renames.h"
#include "cmd/screen.h"
#include "cmd/select.h"

struct options {
        bool stat, name_only, binary, ignored, json, no_pager;
        int colour;
};

static const struct pv_opt table[] = {
        { .name = "stat",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct options, stat),
          .help = "Show how many lines of each file changed, and no patch." },
        { .name = "name-only",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct options, name_only),
          .help = "Show only the names of the files, one a line." },
        { .name = "binary",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct options, binary),
          .help = "Put binary files into the patch, in git's form, instead of naming them." },
        { .name = "ignored",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct options, ignored),
          .help = "Take in the files that git ignores." },
        PV_OPT_JSON(struct options, json),
        PV_OPT_COLOUR(struct options, colour),
        PV_OPT_NO_PAGER(struct options, no_pager),
        { 0 },
};

static const char *const examples[] = {
        "pvisor diff",
        "All that the newest job of this workspace changed",
        "pvisor diff last src README.md",
        "What it changed there",
        "pvisor diff --binary fix | git apply",
        "Put the changes of the job named fix onto another checkout",
        NULL,
};

struct run {
        const struct options *options;
        struct pv_look look;
        struct pv_select select;
        enum pv_left *left;
        bool *selected;
        struct pv_renames renames;
        struct pv_screen screen;
        struct row { /* of --stat, collected until the widths are known */
                char *name;
                size_t added, deleted;
                bool binary;
                uint64_t old_size, new_size;
        } * row;
        size_t n_rows;
        json_t *files;
};

static void run_finip(struct run *r)
{
        for (size_t i = 0; i < r->n_rows; i++)
                free(r->row[i].name);
        free(r->row);
        free(r->left);
        free(r->selected);
        pv_str_fini(&r->screen.held);
        pv_renames_fini(&r->renames);
        pv_select_fini(&r->select);
        json_decref(r->files);
        pv_look_close(&r->look);
}

/* --- what is asked for --- */

static int choose(struct run *r, const struct pv_args *args, size_t first, struct pv_err *err)
{
        const struct pv_verdicts *v = &r->look.verdicts;
        pv_auto_free char *cwd = realpath(".", NULL);
        r->select.all = args->n == first;
        r->select.ignored = r->options->ignored;
        r->select.host_runs = true;
        for (size_t i = first; i < args->n; i++)
                pv_strv_add(&r->select.path, args->words[i]);
        r->left = pv_calloc(v->n, sizeof *r->left);
        r->selected = pv_calloc(v->n, sizeof *r->selected);
        if (pv_select_run(&r->select, v, cwd ? cwd : "/", r->left, err) < 0)
                return -1;
        for (size_t i = 0; i < v->n; i++) {
                /* Another root is another directory: its patch would apply in the wrong place. */
                bool elsewhere = v->change[i].root != 0 && r->select.all;
                r->selected[i] = r->left[i] == PV_LEFT_NOT && !elsewhere;
        }
        return 0;
}

/* --- output --- */

/* "index <40 digits>..<40 digits> 100644" as git shows it: whole names are for `git apply`. */
static size_t shorten_index_line(const char *line, size_t n, char *out)
{
        enum { BEGIN = 6, NAME = 40, SHOWN = 8 };
        if (n < BEGIN + 2 * NAME + 2 || memcmp(line, "index ", BEGIN) != 0 || memcmp(line + BEGIN + NAME, "..", 2) != 0)
                return 0;
        size_t rest = n - (BEGIN + 2 * NAME + 2);
        if (rest > 16)
                return 0;
        memcpy(out, line, BEGIN + SHOWN);
        memcpy(out + BEGIN + SHOWN, line + BEGIN + NAME, 2 + SHOWN);
        memcpy(out + BEGIN + 2 * SHOWN + 2, line + n - rest, rest);
        return BEGIN + 2 * SHOWN + 2 + rest;
}

static void put_patch_line(struct pv_str *out, const struct pv_screen *s, bool header, const char *line, size_t n)
{
        enum pv_style style = header         ? PV_STYLE_BOLD
                              : *line == '@' ? PV_STYLE_CYAN
                              : *line == '+' ? PV_STYLE_GREEN
                              : *line == '-' ? PV_STYLE_RED
                                             : PV_STYLE_PLAIN;
        pv_str_put(out, pv_style_on(s, style));
        pv_put_safe_line(out, line, n);
        pv_str_put(out, style == PV_STYLE_PLAIN ? "" : pv_style_off(s));
        pv_str_putc(out, '\n');
}

/* Where a hunk may be: from "@@" to the next "diff --git" at the start of a line, which no hunk line can have. */
static void put_patch_for_people(struct pv_str *out, const struct pv_screen *s, const struct pv_str *patch)
{
        bool header = true;
        for (size_t i = 0; i < patch->len;) {
                const char *line = patch->s + i, *nl = memchr(line, '\n', patch->len - i);
                size_t n = nl ? (size_t)(nl - line) : patch->len - i;
                if (n >= 4 && memcmp(line, "diff", 4) == 0)
                        header = true;
                else if (n >= 2 && memcmp(line, "@@", 2) == 0)
                        header = false;
                char shown[64];
                size_t short_n = header ? shorten_index_line(line, n, shown) : 0;
                put_patch_line(out, s, header, short_n ? shown : line, short_n ? short_n : n);
                i += n + 1;
        }
}

static int show_patch(struct run *r, const struct pv_diff_file *f, struct pv_err *err)
{
        bool for_people = r->screen.terminal || r->screen.colour;
        pv_auto_str text = { 0 };
        if (f->note.len) {
                pv_str_put(&text, pv_style_on(&r->screen, PV_STYLE_YELLOW));
                pv_str_put_bytes(&text, f->note.s, f->note.len - 1);
                pv_str_put(&text, pv_style_off(&r->screen));
                pv_str_putc(&text, '\n');
        }
        if (for_people)
                put_patch_for_people(&text, &r->screen, &f->patch);
        else if (f->patch.len)
                pv_str_put_bytes(&text, f->patch.s, f->patch.len);
        return pv_screen_write(&r->screen, &text, err);
}

static void add_row(struct run *r, const struct pv_diff_file *f)
{
        pv_auto_str name = { 0 };
        if (!f->patch.len && !f->binary && !f->large)
                return;
        if (f->old_path) {
                pv_str_put_path(&name, f->old_path);
                pv_str_put(&name, " => ");
        }
        pv_str_put_path(&name, f->change->path);
        r->row = pv_realloc(r->row, r->n_rows + 1, sizeof *r->row);
        r->row[r->n_rows++] = (struct row){ pv_str_steal(&name),   f->added,    f->deleted,
                                            f->binary || f->large, f->old_size, f->new_size };
}

/* Of `most` lines in `width` columns. */
static size_t scale(size_t lines, size_t most, size_t width)
{
        if (most <= width || lines == 0)
                return lines;
        size_t columns = lines * width / most;
        return columns ? columns : 1;
}

static void put_row(struct pv_str *out, const struct pv_screen *s, const struct row *row, size_t name_width,
                    size_t number_width, size_t most, size_t bar)
{
        pv_str_putc(out, ' ');
        size_t before = out->len;
        pv_put_fitted_safe(out, row->name, name_width);
        for (size_t n = pv_columns(out->s + before, out->len - before); n < name_width; n++)
                pv_str_putc(out, ' ');
        if (row->binary) {
                pv_str_put(out, " | binary, ");
                pv_str_put_size(out, row->old_size);
                pv_str_put(out, " -> ");
                pv_str_put_size(out, row->new_size);
        } else {
                pv_str_putf(out, " | %*zu%s", (int)number_width, row->added + row->deleted,
                            row->added + row->deleted ? " " : "");
                pv_str_put(out, pv_style_on(s, PV_STYLE_GREEN));
                for (size_t n = scale(row->added, most, bar); n; n--)
                        pv_str_putc(out, '+');
                pv_str_put(out, pv_style_off(s));
                pv_str_put(out, pv_style_on(s, PV_STYLE_RED));
                for (size_t n = scale(row->deleted, most, bar); n; n--)
                        pv_str_putc(out, '-');
                pv_str_put(out, pv_style_off(s));
        }
        pv_str_putc(out, '\n');
}

static int show_stat(struct run *r, struct pv_err *err)
{
        size_t name_width = 0, most = 0, added = 0, deleted = 0, number_width = 1;
        pv_auto_str text = { 0 };
        for (size_t i = 0; i < r->n_rows; i++) {
                const struct row *row = &r->row[i];
                size_t columns = pv_columns(row->name, strlen(row->name));
                name_width = columns > name_width ? columns : name_width;
                most = row->added + row->deleted > most ? row->added + row->deleted : most;
                added += row->added;
                deleted += row->deleted;
        }
        for (size_t n = most; n >= 10; n /= 10)
                number_width++;
        size_t room = r->screen.columns > 40 ? r->screen.columns - 10 - number_width : 60;
        if (name_width > room * 2 / 3)
                name_width = room * 2 / 3;
        for (size_t i = 0; i < r->n_rows; i++)
                put_row(&text, &r->screen, &r->row[i], name_width, number_width, most, room - name_width);
        pv_str_putf(&text, " %zu file%s changed, %zu insertion%s(+), %zu deletion%s(-)\n", r->n_rows,
                    r->n_rows == 1 ? "" : "s", added, added == 1 ? "" : "s", deleted, deleted == 1 ? "" : "s");
        return pv_screen_write(&r->screen, &text, err);
}

static json_t *mode_json(mode_t mode)
{
        char text[16];
        if (!mode)
                return json_null();
        (void)snprintf(text, sizeof text, "%06o", (unsigned)mode);
        return json_string(text);
}

static void add_json(struct run *r, const struct pv_diff_file *f)
{
        static const char *const status[] = { "added", "modified", "deleted", "type", "metadata" };
        const struct pv_change *c = f->change;
        bool text = !f->binary && !f->large, whole = f->patch.len && strlen(f->patch.s) == f->patch.len;
        json_t *one =
                json_pack("{s:o, s:s, s:o, s:o, s:o, s:b, s:o, s:o, s:o}", "path", pv_json_bytes(c->path), "status",
                          f->old_path ? "renamed" : status[c->kind], "renamed_from", pv_json_bytes(f->old_path),
                          "old_mode", mode_json(c->pre.mode), "new_mode", mode_json(c->now.mode), "binary", f->binary,
                          "added_lines", text ? json_integer((json_int_t)f->added) : json_null(), "deleted_lines",
                          text ? json_integer((json_int_t)f->deleted) : json_null(), "size",
                          c->now.mode ? json_integer((json_int_t)f->new_size) : json_null());
        (void)json_object_set_new(one, "patch", whole ? pv_json_bytes(f->patch.s) : json_null());
        (void)json_array_append_new(r->files, one);
}

static int show_name(struct run *r, const struct pv_change *c, struct pv_err *err)
{
        pv_auto_str text = { 0 };
        pv_quote_name(&text, "", c->path);
        pv_str_putc(&text, '\n');
        return pv_screen_write(&r->screen, &text, err);
}

static int show_file(struct run *r, size_t i, struct pv_err *err)
{
        const struct pv_change *c = &r->look.changes->item[i];
        if (r->options->name_only)
                return show_name(r, c, err);
        const struct pv_change *old =
                r->renames.old[i] == PV_NO_CHANGE ? NULL : &r->look.changes->item[r->renames.old[i]];
        pv_auto_diff_file f = { 0 };
        if (pv_diff_file_make(r->look.stage, r->look.changes, c, old,
                              r->options->binary ? PV_PATCH_BINARY : PV_PATCH_TEXT, &f, err) < 0)
                return -1;
        if (r->options->json)
                add_json(r, &f);
        else if (r->options->stat)
                add_row(r, &f);
        else
                return show_patch(r, &f, err);
        return 0;
}

/* A directory is told by what is in it; only one that stays empty, or changed itself, is worth a note. */
static bool is_told(const struct run *r, size_t i)
{
        const struct pv_change *c = &r->look.changes->item[i];
        if (!r->selected[i] || r->renames.now[i] != PV_NO_CHANGE)
                return false;
        if (S_ISDIR(c->now.mode) && c->kind == PV_CHANGE_ADDED) {
                const struct pv_change *next = i + 1 < r->look.changes->n ? c + 1 : NULL;
                size_t n = strlen(c->path);
                return !next || next->root != c->root || strncmp(next->path, c->path, n) != 0 || next->path[n] != '/';
        }
        return !(S_ISDIR(c->pre.mode) && c->kind == PV_CHANGE_DELETED);
}

/* --- what was left out --- */

static void put_left_out(const struct run *r, struct pv_str *out)
{
        const struct pv_verdicts *v = &r->look.verdicts;
        size_t git = 0, elsewhere = 0, n_folds = 0;
        pv_auto_free struct pv_fold *fold = NULL;
        for (size_t i = 0; i < v->n; i++) {
                git += r->left[i] == PV_LEFT_GIT;
                elsewhere += r->left[i] == PV_LEFT_NOT && !r->selected[i];
        }
        if (git)
                pv_str_putf(out,
                            "# left out: %zu change%s in git directories (`pvisor review` tells them in git's words)\n",
                            git, git == 1 ? "" : "s");
        if (elsewhere)
                pv_str_putf(out, "# left out: %zu change%s outside the workspace (name the directory to see them)\n",
                            elsewhere, elsewhere == 1 ? "" : "s");
        if (r->options->ignored || !r->select.all)
                return;
        pv_fold_ignored(v->change, v->item, v->n, &fold, &n_folds);
        for (size_t i = 0; i < n_folds; i++) {
                pv_auto_free char *name = pv_strndup(fold[i].path, fold[i].len);
                pv_str_put(out, "# left out, ignored by git: ");
                pv_quote_name(out, "", name);
                pv_str_putf(out, " (%zu file%s, ", fold[i].n, fold[i].n == 1 ? "" : "s");
                pv_str_put_size(out, fold[i].size);
                pv_str_put(out, ")\n");
        }
}

static int show_all(struct run *r, struct pv_err *err)
{
        pv_auto_str tail = { 0 };
        for (size_t i = 0; i < r->look.changes->n && !r->screen.gone; i++)
                if (is_told(r, i) && show_file(r, i, err) < 0)
                        return -1;
        if (r->options->json) {
                json_t *all = json_pack("{s:s, s:O}", "job", r->look.job->id, "files", r->files);
                return pv_cmd_print_json(all, err);
        }
        if (r->options->stat && show_stat(r, err) < 0)
                return -1;
        if (!r->options->stat)
                put_left_out(r, &tail);
        return pv_screen_write(&r->screen, &tail, err);
}

static int run(const void *options, const struct pv_args *args, struct pv_err *err)
{
        __attribute__((cleanup(run_finip))) struct run r = { .options = options };
        struct pv_job *job = NULL;
        size_t n_used = 0;
        if (pv_patch_begin(err) < 0 || pv_cmd_job_or_last(args, &job, &n_used, err) < 0 ||
            pv_look_open(job, &r.look, err) < 0)
                return -1;
        if (!r.look.stage) {
                (void)pv_err_set(err, PV_ERR_STATE, 0, "%s: there are no staged changes", r.look.job->id);
                return pv_err_hint(err, "%s",
                                   r.look.job->dropped ? "they were dropped"
                                                       : "only a run with --stage or --safe stages");
        }
        r.files = json_array();
        pv_screen_init(&r.screen, (enum pv_colour_choice)r.options->colour, r.options->no_pager);
        if (r.look.changes->n == 0 && args->n == n_used && !r.options->json)
                return 0;
        if (choose(&r, args, n_used, err) < 0)
                return -1;
        pv_renames_find(r.look.changes, r.selected, &r.renames);
        int shown = show_all(&r, err);
        struct pv_err ignored = PV_ERR_INIT;
        int closed = pv_screen_close(&r.screen, shown < 0 ? &ignored : err);
        return shown < 0 || closed < 0 ? -1 : 0;
}

const struct pv_command pv_cmd_diff = {
        .name = "diff",
        .usage = "[options] [JOB] [PATH...]",
        .about = "Shows the changes of a job to the workspace as a patch in git's form. When it does not go to a "
                 "terminal, `git apply` takes it as it is; what a patch cannot say (binary and large files, owners, "
                 "pipes, what was left out) is named on lines that begin with #.\n\n"
                 "Files that git ignores and git directories are left out unless a PATH names them.",
        .options = table,
        .options_size = sizeof(struct options),
        .style = PV_ARGS_MIXED,
        .max_words = SIZE_MAX,
        .words = PV_COMPLETE_JOB_OR_FILE,
        .examples = examples,
        .run = run,
};
