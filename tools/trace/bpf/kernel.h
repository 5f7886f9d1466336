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
static u64 (*const pid_and_tid)(void) = (void *)14;
static long (*const current_comm)(void *to, u32 size) = (void *)16;
static void *(*const current_task)(void) = (void *)35;
static long (*const read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static void *(*const ring_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const ring_submit)(void *record, u64 flags) = (void *)132;
static u64 (*const attach_cookie)(void *context) = (void *)174;

/* The registers of a program in user space: part of the kernel's interface on x86-64. */
struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx;
	u64 r11, r10, r9, r8, ax, cx, dx, si, di;
	u64 orig_ax, ip, cs, flags, sp, ss;
};

struct raw_tracepoint {
	u64 args[3];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
};

struct task_struct {
	int pid;
	int tgid;
	unsigned long nvcsw;
	unsigned long nivcsw;
	struct sched_entity se;
};
#pragma clang attribute pop
