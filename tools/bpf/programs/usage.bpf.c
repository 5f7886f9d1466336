/* The programs of `usage`, which find out how long threads had wide registers in use.
 *
 * At a context switch the kernel first reports sched_switch, then saves the registers of the thread
 * that leaves and reports x86_fpu_regs_deactivated; the thread that leaves is the current one in both.
 * So the first program notes how long the time slice was, and the second, if registers of AVX-512 were
 * in use, adds that to the thread. Another one reports each slice by itself. The last is run by a clock
 * on every CPU and counts where threads are.
 */
#include "kernel.h"

/* Bits of XSTATE_BV (Intel, Software Developer's Manual, volume 1, section 13.1). */
enum {
	IN_USE_MASKS = 1 << 5,
	IN_USE_UPPER = 1 << 6,
	IN_USE_HIGH = 1 << 7,
};

/* More threads than this: those that were idle longest are forgotten. */
enum { THREADS_KEPT = 32768, SAMPLES_KEPT = 32768 };

/* The last time slice of a CPU. */
struct slice {
	/* When it ended, and the next one began. */
	u64 end;
	u64 thread;
	/* 0 once it is counted. */
	u64 length;
};

/* Times of a thread in nanoseconds, by what was in use. This structure and those below are read
 * by ebpf.rs and slices.rs in tools/usage/src. */
struct thread {
	u64 upper;
	u64 high;
	u64 masks;
	u64 cgroup;
	char name[16];
};

struct sample {
	u64 thread;
	u64 address;
};

struct event {
	u64 end;
	u64 length;
	u64 thread;
	u64 cpu;
};

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct slice);
	UINT(max_entries, 1);
} SLICES SEC(".maps");

struct {
	UINT(type, MAP_LRU_HASH);
	TYPE(key, u64);
	TYPE(value, struct thread);
	UINT(max_entries, THREADS_KEPT);
} THREADS SEC(".maps");

/* Number of samples. */
struct {
	UINT(type, MAP_LRU_HASH);
	TYPE(key, struct sample);
	TYPE(value, u64);
	UINT(max_entries, SAMPLES_KEPT);
} SAMPLES SEC(".maps");

/* Slices at whose end the upper halves were in use: those of a busy machine for many milliseconds. */
struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 1 << 18);
} EVENTS SEC(".maps");

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The record of x86_fpu_regs_deactivated. */
struct trace_event_raw_x86_fpu {
	u64 xfeatures;
} __attribute__((preserve_access_index));

SEC("raw_tracepoint/sched_switch")
int at_switch(void *context)
{
	u32 zero = 0;
	struct slice *slice = map_lookup(&SLICES, &zero);
	u64 now = monotonic_ns();

	if (!slice)
		return 0;
	/* Nothing the first time. */
	slice->length = slice->end ? now - slice->end : 0;
	slice->end = now;
	slice->thread = first_pid_and_tid();
	return 0;
}

/* The slice that this thread ends now, NULL if there is none. Registers are also saved outside of context
 * switches: only the thread that is leaving this CPU has ended a slice, and only once. */
INLINE struct slice *ended_by(u64 thread)
{
	u32 zero = 0;
	struct slice *slice = map_lookup(&SLICES, &zero);

	return slice && slice->thread == thread && slice->length ? slice : 0;
}

SEC("tracepoint/x86_fpu/x86_fpu_regs_deactivated")
int at_save(struct trace_event_raw_x86_fpu *record)
{
	u64 in_use = record->xfeatures & (IN_USE_MASKS | IN_USE_UPPER | IN_USE_HIGH);
	u64 thread, length;
	struct slice *slice;
	struct thread *times;

	if (!in_use)
		return 0;
	thread = first_pid_and_tid();
	slice = ended_by(thread);
	if (!slice)
		return 0;
	length = slice->length;
	slice->length = 0;
	times = map_lookup(&THREADS, &thread);
	if (!times) {
		struct thread new = { .cgroup = current_cgroup() };

		current_comm(new.name, sizeof(new.name));
		map_update(&THREADS, &thread, &new, 0);
		times = map_lookup(&THREADS, &thread);
		if (!times)
			return 0;
	}
	/* A thread runs on one CPU at a time: no other CPU adds to its times. */
	if (in_use & IN_USE_UPPER)
		times->upper += length;
	else if (in_use & IN_USE_HIGH)
		times->high += length;
	else
		times->masks += length;
	return 0;
}

SEC("tracepoint/x86_fpu/x86_fpu_regs_deactivated")
int report_save(struct trace_event_raw_x86_fpu *record)
{
	u64 thread;
	struct slice *slice;
	struct event *event;

	if (!(record->xfeatures & IN_USE_UPPER))
		return 0;
	thread = first_pid_and_tid();
	slice = ended_by(thread);
	if (!slice)
		return 0;
	/* If there is no room, its reader is late, and the slice is lost. */
	event = ring_reserve(&EVENTS, sizeof(*event), 0);
	if (event) {
		event->end = slice->end;
		event->length = slice->length;
		event->thread = thread;
		event->cpu = this_cpu();
		ring_submit(event, 0);
	}
	slice->length = 0;
	return 0;
}

/* The context begins with the registers. */
SEC("perf_event")
int at_sample(const struct pt_regs *regs)
{
	struct sample sample = { .address = REGISTER(ip) };
	u64 *count, one = 1;

	/* Nothing in the kernel. */
	if (!(REGISTER(cs) & 3))
		return 0;
	sample.thread = first_pid_and_tid();
	count = map_lookup(&SAMPLES, &sample);
	/* Here, too, no other CPU counts for the thread. */
	if (count)
		*count += 1;
	else
		map_update(&SAMPLES, &sample, &one, 0);
	return 0;
}
