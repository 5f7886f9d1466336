/* What a BPF program needs of the kernel, without the kernel's headers: types, helpers by their
 * numbers (enum bpf_func_id of linux/bpf.h, which never change), and the fields of kernel structures
 * that are read. The loader finds the places of these fields in the running kernel (CO-RE). */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(NAME) __attribute__((section(NAME), used))
#define INLINE static __attribute__((always_inline)) inline

/* A map is described by the types of the members of a structure. */
#define UINT(NAME, VALUE) int(*NAME)[VALUE]
#define TYPE(NAME, OF) OF *NAME

enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERCPU_ARRAY = 6,
	MAP_LRU_HASH = 9,
	MAP_RINGBUF = 27,
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const monotonic_ns)(void) = (void *)5;
static u32 (*const this_cpu)(void) = (void *)8;
static u64 (*const first_pid_and_tid)(void) = (void *)14;
static long (*const current_comm)(void *to, u32 size) = (void *)16;
static void *(*const current_task)(void) = (void *)35;
static u64 (*const current_cgroup)(void) = (void *)80;
static long (*const read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static void *(*const ring_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const ring_submit)(void *record, u64 flags) = (void *)132;
static void *(*const current_task_typed)(void) = (void *)158;
static u64 (*const attach_cookie)(void *context) = (void *)174;

/* The registers of a program in user space: part of the kernel's interface on x86-64. */
struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx;
	u64 r11, r10, r9, r8, ax, cx, dx, si, di;
	u64 orig_ax, ip, cs, flags, sp, ss;
};

/* A register. The verifier refuses a load from a computed place in them, which compilers make of two
 * loads of which one is chosen, nor does it take a load of a part; what is written in assembly compilers
 * leave as it is. */
#define REGISTER(NAME) ({ \
	u64 value; \
	asm volatile("%0 = *(u64 *)(%1 + %2)" \
		     : "=r"(value) \
		     : "r"(regs), "i"(__builtin_offsetof(struct pt_regs, NAME))); \
	value; \
})

struct raw_tracepoint {
	u64 args[3];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
};

struct ns_common {
	u32 inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

/* One number for each namespace from the first to that of the task. */
struct pid {
	u32 level;
	struct upid numbers[1];
};

struct signal_struct {
	/* Of the process: [1]; see enum pid_type. */
	struct pid *pids[2];
};

struct task_struct {
	int pid;
	int tgid;
	unsigned long nvcsw;
	unsigned long nivcsw;
	struct sched_entity se;
	struct pid *thread_pid;
	struct signal_struct *signal;
};
#pragma clang attribute pop

#define READ(FROM) ({ \
	typeof((FROM) + 0) value = 0; \
	read_kernel(&value, sizeof(value), &(FROM)); \
	value; \
})

/* The PID namespace whose numbers are used, by the number of its inode; 0 for the first. The loader sets
 * it, and the kernel removes what is never executed then. */
static const volatile u32 NAMESPACE SEC(".rodata");

/* The number that a thread or process has in our namespace, 0 if it has none. */
INLINE u32 number_of(struct pid *of)
{
	const struct upid *numbers = &of->numbers[0];
	u32 level = READ(of->level);

	for (u32 at = 0; at <= 32 && at <= level; at++) {
		/* As in struct upid, whose layout is the same in every kernel for 64 bits. */
		struct {
			int number;
			u32 unused;
			struct pid_namespace *namespace;
		} one;

		if (read_kernel(&one, sizeof(one), (const char *)numbers + at * sizeof(one)))
			return 0;
		if (READ(one.namespace->ns.inum) == NAMESPACE)
			return one.number;
	}
	return 0;
}

/* Process and thread of a task in our namespace: as the kernel's helper packs them. */
INLINE u64 ids_of(struct task_struct *task)
{
	struct signal_struct *signal;

	if (!NAMESPACE)
		return (u64)READ(task->tgid) << 32 | (u32)READ(task->pid);
	signal = READ(task->signal);
	return (u64)number_of(READ(signal->pids[1])) << 32 | number_of(READ(task->thread_pid));
}

/* The same of the current task. */
INLINE u64 pid_and_tid(void)
{
	return NAMESPACE ? ids_of(current_task()) : first_pid_and_tid();
}
