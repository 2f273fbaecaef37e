/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/modes.h"

#define ESCAPE      '\033'
#define KITTIES_MAX 8

enum { GROUND, ESCAPED, BRACKET, PRIVATE };

/* Set on a terminal that nobody has changed: wrapping lines, and the cursor. */
static bool is_set_by_default(unsigned mode)
{
        return mode == 7 || mode == 25;
}

static void put_in(unsigned *list, size_t *n, unsigned mode)
{
        for (size_t i = 0; i < *n; i++)
                if (list[i] == mode)
                        return;
        if (*n < PV_MODES_MAX)
                list[(*n)++] = mode;
}

static void take_out(unsigned *list, size_t *n, unsigned mode)
{
        for (size_t i = 0; i < *n; i++)
                if (list[i] == mode)
                        list[i--] = list[--*n];
}

static void change(struct pv_modes *m, bool on)
{
        for (size_t i = 0; i < m->n_numbers; i++) {
                unsigned mode = m->number[i];
                if (is_set_by_default(mode))
                        (on ? take_out : put_in)(m->reset, &m->n_reset, mode);
                else
                        (on ? put_in : take_out)(m->set, &m->n_set, mode);
        }
}

static void clear(struct pv_modes *m)
{
        *m = (struct pv_modes){ 0 };
}

/* After ESC. */
static void see_escaped(struct pv_modes *m, char c)
{
        m->state = c == '[' ? BRACKET : GROUND;
        if (c == '=' || c == '>')
                m->keypad = c == '=';
        if (c == 'c')
                clear(m); /* full reset */
}

/* CSI > flags u pushes, CSI < n u pops; CSI > 4 ; n m. */
static void see_keys(struct pv_modes *m, char c)
{
        unsigned n = m->number[0];
        if (m->private == '>' && c == 'u' && m->kitties < KITTIES_MAX) {
                m->kitty = n;
                m->kitties++;
        } else if (m->private == '<' && c == 'u') {
                n = n ? n : 1;
                m->kitties = m->kitties > n ? m->kitties - n : 0;
        } else if (m->private == '>' && c == 'm' && n == 4) {
                m->other_keys = m->n_numbers > 1 ? m->number[1] : 0;
        }
}

static void see_private(struct pv_modes *m, char c)
{
        const size_t most = sizeof m->number / sizeof *m->number;
        if (c >= '0' && c <= '9') {
                unsigned *n = &m->number[m->n_numbers - 1];
                if (*n < 100000)
                        *n = *n * 10 + (unsigned)(c - '0');
        } else if (c == ';' && m->n_numbers < most) {
                m->number[m->n_numbers++] = 0;
        } else {
                if (m->private == '?' && (c == 'h' || c == 'l'))
                        change(m, c == 'h');
                see_keys(m, c);
                m->state = GROUND;
        }
}

void pv_modes_see(struct pv_modes *m, const char *bytes, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                char c = bytes[i];
                if (c == ESCAPE) {
                        m->state = ESCAPED;
                } else if (m->state == ESCAPED) {
                        see_escaped(m, c);
                } else if (m->state == BRACKET) {
                        m->state = c == '?' || c == '>' || c == '<' ? PRIVATE : GROUND;
                        m->private = c;
                        m->n_numbers = 1;
                        m->number[0] = 0;
                } else if (m->state == PRIVATE) {
                        see_private(m, c);
                }
        }
}

bool pv_modes_full_screen(const struct pv_modes *m)
{
        for (size_t i = 0; i < m->n_set; i++)
                if (m->set[i] == 1049 || m->set[i] == 1047 || m->set[i] == 47)
                        return true;
        return false;
}

static void put_all(const unsigned *list, size_t n, char end, struct pv_str *out)
{
        for (size_t i = 0; i < n; i++)
                pv_str_putf(out, "\033[?%u%c", list[i], end);
}

void pv_modes_put(const struct pv_modes *m, struct pv_str *out)
{
        put_all(m->set, m->n_set, 'h', out);
        put_all(m->reset, m->n_reset, 'l', out);
        if (m->keypad)
                pv_str_put(out, "\033=");
        if (m->other_keys)
                pv_str_putf(out, "\033[>4;%um", m->other_keys);
        for (unsigned i = 0; i < m->kitties; i++) /* as often, since each will be popped */
                pv_str_putf(out, "\033[>%uu", m->kitty);
}

void pv_modes_put_undo(const struct pv_modes *m, struct pv_str *out)
{
        put_all(m->set, m->n_set, 'l', out);
        put_all(m->reset, m->n_reset, 'h', out);
        if (m->keypad)
                pv_str_put(out, "\033>");
        if (m->other_keys)
                pv_str_put(out, "\033[>4;0m");
        if (m->kitties)
                pv_str_putf(out, "\033[<%uu", m->kitties);
        pv_str_put(out, "\033[0m");
}
