/* SPDX-License-Identifier: Apache-2.0 */
/* What a job shows on its terminal, where it is looked through for modes. */
#include "cmd/modes.h"
#include "net/fuzz/fuzz.h"

const struct pv_fuzz_seed pv_fuzz_seeds[] = {
        PV_FUZZ_SEED("\033[?1049h\033[?1;25l\033=text\033[31m\033[>1u\033[>4;2m\033[<u"),
        PV_FUZZ_SEED("\033[?1000;1002;1006h\033[?2004h\033c\033[?99999999999h"),
        { NULL, 0 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct pv_modes m = { 0 };
        pv_auto_str out = { 0 };
        pv_modes_see(&m, (const char *)data, size / 2); /* cut somewhere */
        pv_modes_see(&m, (const char *)data + size / 2, size - size / 2);
        pv_modes_put(&m, &out);
        pv_modes_put_undo(&m, &out);
        PV_FUZZ_HOLDS(m.n_set <= PV_MODES_MAX && m.n_reset <= PV_MODES_MAX && out.len < 4096);
        return 0;
}
