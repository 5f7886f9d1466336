# The first and the last line of the records that scripts in lab/ write: machine, commit, and how busy each CPU was.
# `source` it from the root of the tree.

# Times of each CPU so far, in ticks of the kernel: its number, busy, stolen by the hypervisor, all.
cpu_times() {
    awk '/^cpu[0-9]/ { busy = $2 + $3 + $4 + $7 + $8; print substr($1, 4), busy, $9, busy + $9 + $5 + $6 }' /proc/stat
}

# Value of a line of /proc/cpuinfo, of the first CPU.
cpu_is() {
    sed -n "/^$1[[:space:]]*:/ { s/^[^:]*: //p; q }" /proc/cpuinfo
}

# record_begins COMMAND [FIELD…]: COMMAND is what a reader runs again, a FIELD of the machine is JSON, as '"openssl":"3"'.
record_begins() {
    local command=$1 modified=false hypervisor=false
    shift
    [[ -z $(git status --porcelain --untracked-files=no) ]] || modified=true
    ! grep -q '^flags.* hypervisor' /proc/cpuinfo || hypervisor=true
    times_at_start=$(cpu_times)
    printf '{"kind":"run","schema":4,"command":"%s","started":"%s",' "$command" "$(date -u +%FT%TZ)"
    printf '"machine":{"cpu":"%s","cpu_is":{"family":%s,"model":%s},"cpus":%s,"hypervisor":%s,' \
        "$(cpu_is 'model name')" "$(cpu_is 'cpu family')" "$(cpu_is model)" "$(nproc)" "$hypervisor"
    printf '"kernel":"%s","commit":"%s","modified":%s,' "$(uname -r)" "$(git rev-parse HEAD)" "$modified"
    (($# == 0)) || printf '%s,' "$@"
    printf '"load_average_at_start":"%s"}}\n' "$(cat /proc/loadavg)"
}

# Of each CPU, and so of the other hyperthreads of measured ones: the shares of the time since the first line.
record_ends() {
    printf '{"kind":"end","ended":"%s","load_average":"%s","during":{"busy":{' "$(date -u +%FT%TZ)" "$(cat /proc/loadavg)"
    awk 'NR == FNR { busy[$1] = $2; stolen[$1] = $3; all[$1] = $4; next }
        { time = $4 - all[$1] }
        time > 0 {
            printf "%s\"%s\":{\"busy\":%.2f,\"stolen\":%.2f}", comma, $1, ($2 - busy[$1]) / time, ($3 - stolen[$1]) / time
            comma = ","
        }' <(echo "$times_at_start") <(cpu_times)
    printf '}}}\n'
}
