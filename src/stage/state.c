/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/state.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "base/json.h"
#include "stage/baseline.h"

#define STATE_FILE     "stage.json"
#define STATE_FILE_MAX ((size_t)4 * 1024 * 1024)
#define NAME_MAX_BYTES 255

static const char *const kind_name[] = { "workspace", "git_dir", "mount" };

struct pv_stage *pv_stage_new(void)
{
        unsigned char id[16];
        struct pv_stage *s = pv_calloc(1, sizeof *s);
        s->fd.fd = s->lock_fd = s->decide_fd = s->watch.fd = -1;
        if (getrandom(id, sizeof id, 0) != sizeof id)
                memset(id, 0, sizeof id); /* never short for so few bytes (random(7)) */
        pv_hex(id, sizeof id, s->id);
        return s;
}

void pv_stage_add_root(struct pv_stage *s, const struct pv_root *root)
{
        s->roots = pv_realloc(s->roots, s->n_roots + 1, sizeof *s->roots);
        s->roots[s->n_roots++] = (struct pv_stage_root){
                .root = { .kind = root->kind, .target = pv_strdup(root->target), .view = pv_strdup(root->view) },
                .target = PV_PATHFD_INIT,
        };
}

struct pv_stage_layer *pv_stage_add_layer(struct pv_stage *s, const char *from, unsigned number)
{
        s->layers = pv_realloc(s->layers, s->n_layers + 1, sizeof *s->layers);
        struct pv_stage_layer *l = &s->layers[s->n_layers++];
        *l = (struct pv_stage_layer){ .from = from ? pv_strdup(from) : NULL, .number = number };
        l->t0 = pv_calloc(s->n_roots, sizeof *l->t0);
        l->fd = pv_calloc(s->n_roots, sizeof *l->fd);
        for (size_t i = 0; i < s->n_roots; i++)
                l->fd[i] = -1;
        return l;
}

/* Writing */

static json_t *root_to_json(const struct pv_stage_root *r)
{
        return json_pack("{s:s, s:o, s:o, s:I, s:I}", "kind", kind_name[r->root.kind], "target",
                         pv_json_bytes(r->root.target), "view", pv_json_bytes(r->root.view), "device",
                         (json_int_t)r->dev, "inode", (json_int_t)r->ino);
}

static json_t *layer_to_json(const struct pv_stage *s, const struct pv_stage_layer *l)
{
        json_t *j = json_pack("{s:o, s:i, s:o}", "owner", pv_json_bytes(l->from), "number", (int)l->number, "name",
                              pv_json_bytes(l->name));
        if (!l->ran)
                return j;
        json_t *t0 = json_array();
        for (size_t i = 0; i < s->n_roots; i++)
                (void)json_array_append_new(
                        t0, json_pack("[I, I]", (json_int_t)l->t0[i].tv_sec, (json_int_t)l->t0[i].tv_nsec));
        (void)json_object_set_new(j, "start",
                                  json_pack("{s:s, s:I, s:I, s:I, s:o}", "boot_id", l->clock.boot_id, "realtime_ns",
                                            (json_int_t)l->clock.realtime_ns, "suspended_ns",
                                            (json_int_t)l->clock.suspended_ns, "boottime_ns",
                                            (json_int_t)l->clock.boottime_ns, "t0", t0));
        return j;
}

int pv_stage_write_state(struct pv_stage *s, struct pv_err *err)
{
        json_t *roots = json_array(), *layers = json_array();
        for (size_t i = 0; i < s->n_roots; i++)
                (void)json_array_append_new(roots, root_to_json(&s->roots[i]));
        for (size_t i = 0; i < s->n_layers; i++)
                (void)json_array_append_new(layers, layer_to_json(s, &s->layers[i]));
        pv_auto_json j = json_pack("{s:i, s:s, s:i, s:o, s:o}", "version", PV_STAGE_VERSION, "id", s->id, "runs",
                                   (int)s->runs, "roots", roots, "layers", layers);
        if (!j)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "write %s/" STATE_FILE, s->dir);
        if (pv_json_write_at(s->fd.fd, STATE_FILE, j, PV_FILE_REPLACE, err) < 0)
                return pv_err_wrap(err, "stage %s", s->dir);
        (void)unlinkat(s->fd.fd, PV_STAGE_UNFINISHED, 0); /* beside stage.json it says nothing */
        s->unwritten = false;
        return 0;
}

/* Reading: everything is checked here, once. */

static int get_name(const json_t *j, const char *key, const char *const *names, size_t n, unsigned *out,
                    struct pv_err *err)
{
        const char *text = NULL;
        if (pv_json_get_str(j, key, &text, err) < 0)
                return -1;
        for (unsigned i = 0; i < n; i++)
                if (pv_streq(names[i], text)) {
                        *out = i;
                        return 0;
                }
        return pv_err_set(err, PV_ERR_INPUT, 0, "\"%s\" has an unknown value", key);
}

static int get_absolute(const json_t *j, const char *key, char **out, struct pv_err *err)
{
        pv_auto_free char *path = NULL;
        if (pv_json_get_bytes(json_object_get(j, key), &path, err) < 0)
                return pv_err_wrap(err, "\"%s\"", key);
        if (path[0] != '/' || strlen(path) >= 4096)
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"%s\" is not an absolute path", key);
        *out = pv_steal(&path);
        return 0;
}

static int read_root(const json_t *j, struct pv_stage_root *r, struct pv_err *err)
{
        unsigned kind = 0;
        int64_t dev = 0, ino = 0;
        if (get_name(j, "kind", kind_name, 3, &kind, err) < 0 || get_absolute(j, "target", &r->root.target, err) < 0 ||
            get_absolute(j, "view", &r->root.view, err) < 0 ||
            pv_json_get_int(j, "device", INT64_MIN, INT64_MAX, &dev, err) < 0 ||
            pv_json_get_int(j, "inode", INT64_MIN, INT64_MAX, &ino, err) < 0)
                return -1;
        r->root.kind = (enum pv_root_kind)kind;
        r->dev = (uint64_t)dev;
        r->ino = (uint64_t)ino;
        return 0;
}

static int read_t0(const json_t *j, struct timespec *t, struct pv_err *err)
{
        if (!json_is_array(j) || json_array_size(j) != 2 || !json_is_integer(json_array_get(j, 0)) ||
            !json_is_integer(json_array_get(j, 1)))
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"t0\" is not a list of times");
        t->tv_sec = json_integer_value(json_array_get(j, 0));
        t->tv_nsec = json_integer_value(json_array_get(j, 1));
        return t->tv_nsec >= 0 && t->tv_nsec < 1000000000 ? 0
                                                          : pv_err_set(err, PV_ERR_INPUT, 0, "\"t0\" is not a time");
}

static int read_start(const struct pv_stage *s, const json_t *j, struct pv_stage_layer *l, struct pv_err *err)
{
        const char *boot = NULL;
        json_t *t0 = NULL;
        if (pv_json_get_str(j, "boot_id", &boot, err) < 0 ||
            pv_json_get_int(j, "realtime_ns", INT64_MIN, INT64_MAX, &l->clock.realtime_ns, err) < 0 ||
            pv_json_get_int(j, "suspended_ns", INT64_MIN, INT64_MAX, &l->clock.suspended_ns, err) < 0 ||
            pv_json_get_int(j, "boottime_ns", INT64_MIN, INT64_MAX, &l->clock.boottime_ns, err) < 0 ||
            pv_json_get_array(j, "t0", s->n_roots, &t0, err) < 0)
                return -1;
        if (strlen(boot) >= sizeof l->clock.boot_id || json_array_size(t0) != s->n_roots)
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"start\" does not fit the roots");
        memcpy(l->clock.boot_id, boot, strlen(boot) + 1);
        for (size_t i = 0; i < s->n_roots; i++)
                if (read_t0(json_array_get(t0, i), &l->t0[i], err) < 0)
                        return -1;
        l->ran = true;
        return 0;
}

static int read_layer(struct pv_stage *s, const json_t *j, struct pv_err *err)
{
        int64_t number = 0;
        pv_auto_free char *owner = NULL;
        const json_t *name = json_object_get(j, "name"), *start = json_object_get(j, "start");
        if (pv_json_get_int(j, "number", 0, 9999, &number, err) < 0)
                return -1;
        if (!json_is_null(json_object_get(j, "owner")) && get_absolute(j, "owner", &owner, err) < 0)
                return -1;
        struct pv_stage_layer *l = pv_stage_add_layer(s, owner, (unsigned)number);
        if (!json_is_null(name) && pv_json_get_bytes(name, &l->name, err) < 0)
                return pv_err_wrap(err, "\"name\"");
        if (l->name && strlen(l->name) > NAME_MAX_BYTES)
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"name\" is too long");
        return start ? read_start(s, start, l, err) : 0;
}

static int read_roots(struct pv_stage *s, const json_t *list, struct pv_err *err)
{
        if (json_array_size(list) == 0)
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"roots\" is empty");
        s->roots = pv_calloc(json_array_size(list), sizeof *s->roots);
        for (size_t i = 0; i < json_array_size(list); i++) {
                s->roots[i].target.fd = -1;
                s->n_roots++;
                if (read_root(json_array_get(list, i), &s->roots[i], err) < 0)
                        return pv_err_wrap(err, "\"roots\"");
        }
        return 0;
}

static int read_layers(struct pv_stage *s, const json_t *list, struct pv_err *err)
{
        for (size_t i = 0; i < json_array_size(list); i++)
                if (read_layer(s, json_array_get(list, i), err) < 0)
                        return pv_err_wrap(err, "\"layers\"");
        if (s->n_layers == 0 || pv_stage_top(s)->from)
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"layers\" has none of this stage on top");
        return 0;
}

/* Sealed when the preimages of every root are those of the last run. A damaged file is sealed again, and doubted. */
static enum pv_stage_state find_state(const struct pv_stage *s)
{
        if (s->runs == 0)
                return PV_STATE_NEW;
        for (size_t i = 0; i < s->n_roots; i++) {
                struct pv_err ignored = PV_ERR_INIT;
                struct pv_preimage_reader *r = NULL;
                pv_auto_free char *file = pv_baseline_file(i);
                if (pv_preimages_open(s->fd.fd, file, &r, &ignored) < 0)
                        return PV_STATE_RUNNING;
                unsigned run = pv_preimages_run(r);
                pv_preimages_close(r);
                if (run != s->runs)
                        return PV_STATE_RUNNING;
        }
        return PV_STATE_SEALED;
}

static int read_members(struct pv_stage *s, const json_t *j, struct pv_err *err)
{
        int64_t version = 0, runs = 0;
        const char *id = NULL;
        json_t *roots = NULL, *layers = NULL;
        if (pv_json_get_int(j, "version", 1, INT32_MAX, &version, err) < 0)
                return -1;
        if (version > PV_STAGE_VERSION)
                return pv_err_set(err, PV_ERR_INPUT, 0, "made by a newer pVisor (format %d, this one knows %d)",
                                  (int)version, PV_STAGE_VERSION);
        if (pv_json_get_str(j, "id", &id, err) < 0 || pv_json_get_int(j, "runs", 0, INT32_MAX, &runs, err) < 0 ||
            pv_json_get_array(j, "roots", PV_STAGE_MAX_ROOTS, &roots, err) < 0 ||
            pv_json_get_array(j, "layers", PV_STAGE_MAX_LAYERS, &layers, err) < 0)
                return -1;
        if (strlen(id) != sizeof s->id - 1 || strspn(id, "0123456789abcdef") != sizeof s->id - 1)
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"id\" is not one");
        memcpy(s->id, id, strlen(id) + 1);
        s->runs = (unsigned)runs;
        if (read_roots(s, roots, err) < 0 || read_layers(s, layers, err) < 0)
                return -1;
        s->state = find_state(s);
        return 0;
}

int pv_stage_read_state(struct pv_stage *s, struct pv_err *err)
{
        pv_auto_json j = NULL;
        if (pv_json_read_at(s->fd.fd, STATE_FILE, STATE_FILE_MAX, &j, err) < 0)
                return pv_err_wrap(err, "stage %s", s->dir);
        if (read_members(s, j, err) < 0)
                return pv_err_wrap(err, "stage %s: " STATE_FILE, s->dir);
        return 0;
}
