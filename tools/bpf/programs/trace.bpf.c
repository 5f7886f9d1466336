/* The programs that run in the kernel when a traced function is entered or left, when a traced
 * process has read or written, and when processes start and end.
 *
 * A call is known by process, function and stack pointer at its entry, not by a list for each thread:
 * functions of TLS libraries run on coroutines, too, which are left in the middle and continued while
 * others run, on the same thread or another.
 */
#include "kernel.h"

/* The structures below are read by tools/trace/src/record.rs. */

enum {
	RECORD_CALL = 1,
	RECORD_BYTES = 2,
	RECORD_EXIT = 3,
	RECORD_FORK = 4,
	RECORD_LOADED = 5,
	RECORD_MARK = 6,
	RECORD_EXEC = 7,
};

/* Bits of a probe's cookie; the lower 16 are the number of the function. Above the lower 32: where in its
 * object a function that may do a handshake finds whether one is under way. */
enum {
	COOKIE_GOROUTINE = 1 << 16,
	/* The probe is on a `ret` instruction: the stack pointer is as at the entry. Elsewhere the return
	 * address has left the stack. */
	COOKIE_AT_RET = 1 << 17,
	COOKIE_EVENT = 1 << 18,
	COOKIE_COUNT = 1 << 19,
	COOKIE_DATA = 1 << 20,
	/* The function is not seen to return: its entry is reported. */
	COOKIE_ENTRY = 1 << 21,
	/* Of interest only if a handshake is under way at the entry. */
	COOKIE_HANDSHAKE = 1 << 22,
	/* The probe is in all processes; only those that are traced report anything. */
	COOKIE_TRACED = 1 << 23,
};

enum {
	FLAG_GOROUTINE = 1,
	FLAG_CPU = 2,
	FLAG_SIZE = 4,
	FLAG_WRITTEN = 8,
	/* Of a process: its reads and writes are not looked at. */
	FLAG_SILENT = 16,
	/* What it forks is traced, too. */
	FLAG_FORKS = 128,
	/* Of a call: a handshake was under way at the entry; it still is at the return. */
	FLAG_BEGAN_INSIDE = 32,
	FLAG_STILL_INSIDE = 64,
};

enum {
	SIZE_NONE,
	SIZE_RESULT,
	SIZE_ARGUMENT,
	SIZE_BEHIND_8,
	SIZE_BEHIND_4,
	/* A result of a Go function. */
	SIZE_GO_RESULT,
	/* How many of eight pointers are not NULL. */
	SIZE_POINTERS,
};

/* What return values mean. */
enum {
	RETURNS_ONE,
	RETURNS_ZERO,
	RETURNS_ANY,
	RETURNS_POINTER,
	/* An interface of Go, in the register with this number above RETURNS_GO: nil is success. */
	RETURNS_GO = 16,
};

struct function {
	u8 object;
	u8 size_kind;
	u8 size_argument;
	u8 returns;
	/* The argument that is a place for the result: if it is NULL, the call only asks for a size. */
	u8 output;
	u8 unused[3];
};

enum { NO_OUTPUT = 255 };

struct frame_key {
	u64 stack;
	u32 pid;
	u32 function;
};

struct frame {
	u64 start;
	/* CPU time of the thread until then, on the clock of its CPU; see cpu_clock. */
	u64 cpu_clock;
	u64 cpu_sum;
	u64 switches;
	u64 object;
	/* The argument behind which the size is, or the size. */
	u64 size;
	u64 data;
	u32 tid;
	u32 cpu;
};

struct call {
	u32 kind;
	u32 pid;
	u32 tid;
	u16 function;
	u16 flags;
	u64 stack;
	u64 start;
	u64 wall;
	u64 cpu;
	s64 result;
	u64 object;
	u64 size;
	char comm[16];
};

struct bytes {
	u32 kind;
	u32 pid;
	u32 tid;
	u16 captured;
	u16 flags;
	u64 stack;
	u64 time;
	u64 length;
	u32 descriptor;
	u32 unused;
};

enum { ARGUMENTS = 8 };

/* A static probe (USDT) was reached. */
struct mark {
	u32 kind;
	u32 pid;
	u32 tid;
	/* The row of the table. */
	u16 row;
	/* Which arguments are known: a bit for each. */
	u16 known;
	u64 time;
	u64 arguments[ARGUMENTS];
	char comm[16];
};

/* Where an argument of a static probe is. */
enum {
	PLACE_NONE,
	PLACE_CONSTANT,
	PLACE_REGISTER,
	PLACE_MEMORY,
};

struct place {
	u8 kind;
	/* The register's place in struct pt_regs. */
	u8 at;
	/* Of the value: bits above it, which are cut, and whether it has a sign. */
	u8 above;
	u8 is_signed;
	/* In memory: so far from where the register points to. */
	int displacement;
	s64 constant;
};

struct site {
	struct place places[ARGUMENTS];
};

struct process {
	u32 kind;
	u32 pid;
	/* Of a process that was forked. */
	u32 parent;
	u32 unused;
};

/* Time of calls, counted here: nothing is sent for each call. */
struct count_key {
	u32 pid;
	u16 function;
	u8 outcome;
	u8 unused;
	u32 bucket;
};

struct count {
	u64 calls;
	u64 total;
};

/* A place for one call under way. */
struct slot {
	/* SLOT_FREE, SLOT_IN_WORK, or what is computed from the key: whose it is. */
	u64 owner;
	struct frame_key key;
	struct frame frame;
};

enum {
	SLOT_FREE,
	/* Another CPU writes it. */
	SLOT_IN_WORK,
};

enum { FUNCTIONS = 1024, SITES = 4096, CALL_DATA = 4096 };
enum { SLOT_BITS = 13 };
/* How the place of a slot is made of its owner. The loader sets it; a test has fewer slots. */
static const volatile u32 SLOT_SHIFT SEC(".rodata") = 64 - SLOT_BITS;
/* A minute: no handshake takes so long. */
#define SLOT_KEPT_NS 60000000000ULL

struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct function);
	UINT(max_entries, FUNCTIONS);
} FUNCTION_TABLE SEC(".maps");

/* Where static probes have their arguments. */
struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct site);
	UINT(max_entries, SITES);
} SITE_TABLE SEC(".maps");

/* Calls under way, by a number from their keys: nearly all. The kernel finds an element of an array without
 * calling a function. */
struct {
	UINT(type, MAP_ARRAY);
	TYPE(key, u32);
	TYPE(value, struct slot);
	UINT(max_entries, 1 << SLOT_BITS);
} SLOTS SEC(".maps");

/* Calls under way whose slot another has. A call that is never left goes when the table is full. */
struct {
	UINT(type, MAP_LRU_HASH);
	TYPE(key, struct frame_key);
	TYPE(value, struct frame);
	UINT(max_entries, 65536);
} FRAMES SEC(".maps");

struct {
	UINT(type, MAP_HASH);
	TYPE(key, struct count_key);
	TYPE(value, struct count);
	UINT(max_entries, 65536);
} COUNTS SEC(".maps");

/* Processes that are traced: FLAG_GOROUTINE, FLAG_SILENT, FLAG_FORKS or 0. */
struct {
	UINT(type, MAP_HASH);
	TYPE(key, u32);
	TYPE(value, u32);
	UINT(max_entries, 16384);
} TRACED SEC(".maps");

/* Connections whose record goes on in the next call, by process, descriptor and whether they are written: how
 * many bytes of it are to come. OpenSSL reads header and body of a record apart, and writes a long flight of
 * TLS 1.2 in pieces. */
struct {
	UINT(type, MAP_LRU_HASH);
	TYPE(key, u64);
	TYPE(value, u32);
	UINT(max_entries, 16384);
} GOES_ON SEC(".maps");

/* The loader makes it larger or smaller. */
struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 16 << 20);
} EVENTS SEC(".maps");

/* Has something when a process has started or loaded something: that is urgent, and other events are not. */
struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 4096);
} BELL SEC(".maps");

/* Records for which there was no room. */
struct {
	UINT(type, MAP_PERCPU_ARRAY);
	TYPE(key, u32);
	TYPE(value, u64);
	UINT(max_entries, 1);
} LOST SEC(".maps");

char LICENSE[] SEC("license") = "Dual MIT/GPL";

INLINE void count_lost(void)
{
	u32 zero = 0;
	u64 *lost = map_lookup(&LOST, &zero);
	if (lost)
		*lost += 1;
}

/* Whether a probe with this cookie is of interest in a process. */
INLINE int is_wanted(u64 cookie, u32 pid)
{
	return !(cookie & COOKIE_TRACED) || map_lookup(&TRACED, &pid);
}

/* An argument of the function that is entered, from 0: by the System V ABI, or by Go's own, whose
 * results are in the same registers. */
INLINE u64 argument(const struct pt_regs *regs, u32 number, int go)
{
	switch (number) {
	case 0:
		return go ? REGISTER(ax) : REGISTER(di);
	case 1:
		return go ? REGISTER(bx) : REGISTER(si);
	case 2:
		return go ? REGISTER(cx) : REGISTER(dx);
	case 3:
		return go ? REGISTER(di) : REGISTER(cx);
	case 4:
		return go ? REGISTER(si) : REGISTER(r8);
	case 5:
		return go ? REGISTER(r8) : REGISTER(r9);
	case 6:
		return REGISTER(r9);
	case 7:
		return REGISTER(r10);
	default:
		return REGISTER(r11);
	}
}

/* What tells the CPU time of the current thread at a time. */
INLINE void cpu_time(struct frame *frame, u64 now)
{
	struct task_struct *task = current_task_typed();
	frame->switches = task->nvcsw + task->nivcsw;
	frame->cpu_sum = task->se.sum_exec_runtime;
	/* The time in this slice, but for a number that stays the same on one CPU: the kernel counts
	 * slices by a clock of each CPU that leaves out interrupts. */
	frame->cpu_clock = now - task->se.exec_start;
	frame->cpu = this_cpu();
}

/* CPU time of the thread since a frame was entered. */
INLINE u64 cpu_since(const struct frame *frame, u64 wall)
{
	struct task_struct *task = current_task_typed();
	struct frame now;
	s64 spent;

	if (task->nvcsw + task->nivcsw == frame->switches)
		return wall;
	cpu_time(&now, frame->start + wall);
	spent = now.cpu_sum - frame->cpu_sum;
	/* On another CPU, the parts of slices before and after the call cannot be told. */
	if (now.cpu == frame->cpu)
		spent += now.cpu_clock - frame->cpu_clock;
	if (spent < 0)
		return 0;
	return (u64)spent < wall ? (u64)spent : wall;
}

INLINE u64 owner_of(const struct frame_key *key)
{
	u64 mixed = key->stack ^ ((u64)key->pid << 32 | (u64)key->function << 52);

	mixed *= 0x9e3779b97f4a7c15;
	mixed ^= mixed >> 32;
	mixed *= 0xd6e8feb86659fd93;
	/* Neither SLOT_FREE nor SLOT_IN_WORK. */
	return mixed | 2;
}

INLINE struct slot *slot_of(u64 owner)
{
	u32 at = owner >> (SLOT_SHIFT & 63);
	return map_lookup(&SLOTS, &at);
}

/* Keeps the beginning of a call. */
INLINE void keep_frame(const struct frame_key *key, const struct frame *frame)
{
	u64 owner = owner_of(key), before;
	struct slot *slot = slot_of(owner);

	if (!slot)
		return;
	before = *(volatile u64 *)&slot->owner;
	/* A call that has not returned for so long may never do it. Where it does, it finds that the slot
	 * is not its own any more. */
	if (before == SLOT_FREE || before == owner
	    || (before != SLOT_IN_WORK && slot->frame.start + SLOT_KEPT_NS < frame->start)) {
		if (__sync_val_compare_and_swap(&slot->owner, before, SLOT_IN_WORK) == before) {
			slot->key = *key;
			slot->frame = *frame;
			/* The processor keeps the order of writes; so must the compiler. */
			asm volatile("" ::: "memory");
			*(volatile u64 *)&slot->owner = owner;
			return;
		}
	}
	if (map_update(&FRAMES, key, frame, 0))
		count_lost();
}

/* Takes the beginning of a call that ends. Whether there is one: it may have begun before it was traced. */
INLINE int take_frame(const struct frame_key *key, struct frame *frame)
{
	u64 owner = owner_of(key);
	struct slot *slot = slot_of(owner);
	struct frame *kept;

	if (slot && *(volatile u64 *)&slot->owner == owner && slot->key.stack == key->stack
	    && slot->key.pid == key->pid && slot->key.function == key->function) {
		*frame = slot->frame;
		asm volatile("" ::: "memory");
		return __sync_val_compare_and_swap(&slot->owner, owner, SLOT_FREE) == owner;
	}
	kept = map_lookup(&FRAMES, key);
	if (!kept)
		return 0;
	*frame = *kept;
	map_delete(&FRAMES, key);
	return 1;
}

/* The bucket of a histogram: the number itself below 16, then sixteen for each power of two. */
INLINE u32 bucket_of(u64 ns)
{
	u32 exponent = 0;
	u64 rest = ns;

	if (ns < 16)
		return ns;
	if (rest >> 32) {
		rest >>= 32;
		exponent += 32;
	}
	if (rest >> 16) {
		rest >>= 16;
		exponent += 16;
	}
	if (rest >> 8) {
		rest >>= 8;
		exponent += 8;
	}
	if (rest >> 4) {
		rest >>= 4;
		exponent += 4;
	}
	if (rest >> 2) {
		rest >>= 2;
		exponent += 2;
	}
	if (rest >> 1)
		exponent += 1;
	return (exponent - 3) * 16 + ((ns >> (exponent - 4)) & 15);
}

/* What tells whether a call has succeeded. */
INLINE s64 result_of(const struct pt_regs *regs, u32 returns)
{
	return returns >= RETURNS_GO ? argument(regs, returns - RETURNS_GO, 1) : REGISTER(ax);
}

INLINE int succeeded(u32 returns, s64 result)
{
	if (returns >= RETURNS_GO)
		return !result;
	if (returns == RETURNS_ONE)
		return (int)result > 0;
	if (returns == RETURNS_ZERO)
		return (int)result == 0;
	if (returns == RETURNS_POINTER)
		return !!result;
	return 1;
}

INLINE void count_call(u32 pid, u32 number, int ok, u64 wall)
{
	struct count_key key = {
		.pid = pid,
		.function = number,
		.outcome = !ok,
		.bucket = bucket_of(wall),
	};
	struct count *count = map_lookup(&COUNTS, &key);

	if (count) {
		__sync_fetch_and_add(&count->calls, 1);
		__sync_fetch_and_add(&count->total, wall);
	} else {
		struct count first = { .calls = 1, .total = wall };
		/* Another CPU may have been quicker; then this one call is counted as lost. */
		if (map_update(&COUNTS, &key, &first, 1))
			count_lost();
	}
}

/* Whether a handshake is under way on an object, as the library itself notes there; 0 if that cannot be
 * read. */
INLINE u32 is_in_handshake(u64 object, u64 cookie)
{
	u32 state = 0;

	if (read_user(&state, sizeof(state), (void *)(object + (cookie >> 32))))
		return 0;
	return state;
}

INLINE void fill_call(const struct pt_regs *regs, struct call *call, const struct frame_key *key,
		      const struct frame *frame, const struct function *function, u64 wall,
		      s64 result, u64 cookie)
{
	int go = !!(cookie & COOKIE_GOROUTINE);
	u32 flags = FLAG_CPU;
	u64 pointers[8];

	call->kind = RECORD_CALL;
	call->pid = key->pid;
	call->tid = (u32)pid_and_tid();
	call->function = key->function;
	call->stack = key->stack;
	call->start = frame->start;
	call->wall = wall;
	call->result = result;
	call->object = frame->object;
	call->size = 0;
	call->cpu = 0;
	/* A goroutine changes its thread where it waits. */
	if (call->tid == frame->tid)
		call->cpu = cpu_since(frame, wall);
	else
		flags = 0;
	if (go)
		flags |= FLAG_GOROUTINE;
	if (cookie & COOKIE_HANDSHAKE) {
		flags |= FLAG_BEGAN_INSIDE;
		if (is_in_handshake(frame->object, cookie))
			flags |= FLAG_STILL_INSIDE;
	}
	switch (function->size_kind) {
	case SIZE_RESULT:
		call->size = (int)REGISTER(ax);
		if ((int)REGISTER(ax) > 0)
			flags |= FLAG_SIZE;
		break;
	case SIZE_ARGUMENT:
		call->size = frame->size;
		flags |= FLAG_SIZE;
		break;
	case SIZE_BEHIND_8:
		if (!read_user(&call->size, 8, (void *)frame->size))
			flags |= FLAG_SIZE;
		break;
	case SIZE_BEHIND_4:
		if (!read_user(&call->size, 4, (void *)frame->size))
			flags |= FLAG_SIZE;
		break;
	case SIZE_GO_RESULT:
		call->size = argument(regs, function->size_argument, 1);
		flags |= FLAG_SIZE;
		break;
	case SIZE_POINTERS:
		if (!read_user(pointers, sizeof(pointers), (void *)frame->size)) {
#pragma unroll
			for (int lane = 0; lane < 8; lane++)
				call->size += !!pointers[lane];
			flags |= FLAG_SIZE;
		}
		break;
	}
	call->flags = flags;
	current_comm(call->comm, sizeof(call->comm));
}

INLINE void send_call(const struct pt_regs *regs, const struct frame_key *key,
		      const struct frame *frame, const struct function *function, u64 wall,
		      s64 result, u64 cookie)
{
	struct call *call = ring_reserve(&EVENTS, sizeof(*call), 0);

	if (!call) {
		count_lost();
		return;
	}
	fill_call(regs, call, key, frame, function, wall, result, cookie);
	ring_submit(call, 0);
}

/* What follows the record of a call that carries data. */
struct call_with_data {
	struct call call;
	u32 captured;
	u32 unused;
	u8 data[CALL_DATA];
};

/* At a `ret` instruction of a function, or after a call of it. There is no program for the kernel's return
 * probes: they would change the stack of every process that meets the probe of a function. */
SEC("uprobe")
int leave(struct pt_regs *regs)
{
	u64 cookie = attach_cookie(regs);
	u64 below = cookie & COOKIE_AT_RET ? 0 : 8;
	int go = !!(cookie & COOKIE_GOROUTINE);
	u64 now = monotonic_ns();
	struct frame_key key = {
		.stack = go ? REGISTER(r14) : REGISTER(sp) - below,
		.pid = pid_and_tid() >> 32,
		.function = cookie & 0xffff,
	};
	struct function *function = map_lookup(&FUNCTION_TABLE, &key.function);
	struct frame frame;
	u64 wall;
	s64 result;

	if (!function || !take_frame(&key, &frame))
		return 0;
	wall = now - frame.start;
	result = result_of(regs, function->returns);
	if (cookie & COOKIE_COUNT)
		/* Processes with probes of this kind are too many to be counted one by one. */
		count_call(cookie & COOKIE_TRACED ? 0 : key.pid, key.function,
			   succeeded(function->returns, result), wall);
	if (cookie & COOKIE_DATA) {
		struct call_with_data *record = ring_reserve(&EVENTS, sizeof(*record), 0);
		u64 length;

		if (record) {
			fill_call(regs, &record->call, &key, &frame, function, wall, result,
				  cookie);
			length = record->call.flags & FLAG_SIZE ? record->call.size : 0;
			if (!succeeded(function->returns, result))
				length = 0;
			if (length > CALL_DATA)
				length = CALL_DATA;
			record->captured = length;
			record->unused = 0;
			if (read_user(record->data, length & (2 * CALL_DATA - 1), (void *)frame.data))
				record->captured = 0;
			ring_submit(record, 0);
		} else {
			count_lost();
		}
	} else if (cookie & COOKIE_EVENT) {
		send_call(regs, &key, &frame, function, wall, result, cookie);
	}
	return 0;
}

SEC("uprobe")
int enter(struct pt_regs *regs)
{
	u64 cookie = attach_cookie(regs);
	u32 number = cookie & 0xffff;
	int go = !!(cookie & COOKIE_GOROUTINE);
	struct function *function = map_lookup(&FUNCTION_TABLE, &number);
	u64 thread = pid_and_tid();
	struct frame_key key = {
		.stack = go ? REGISTER(r14) : REGISTER(sp),
		.pid = thread >> 32,
		.function = number,
	};
	struct frame frame = {};

	if (!function || !is_wanted(cookie, key.pid))
		return 0;
	if (function->output != NO_OUTPUT && !argument(regs, function->output, go))
		return 0;
	frame.object = argument(regs, function->object, go);
	if (cookie & COOKIE_HANDSHAKE && !is_in_handshake(frame.object, cookie))
		return 0;
	if (function->size_kind >= SIZE_ARGUMENT && function->size_kind != SIZE_GO_RESULT)
		frame.size = argument(regs, function->size_argument, go);
	if (cookie & COOKIE_DATA)
		frame.data = argument(regs, 1, go);
	frame.tid = (u32)thread;
	frame.start = monotonic_ns();
	if (cookie & COOKIE_EVENT)
		cpu_time(&frame, frame.start);
	if (cookie & COOKIE_ENTRY) {
		if (cookie & COOKIE_EVENT)
			send_call(regs, &key, &frame, function, 0, 0, cookie);
		return 0;
	}
	keep_frame(&key, &frame);
	return 0;
}

/* An argument of a static probe; 0 if it cannot be read. */
INLINE int argument_at(const struct pt_regs *regs, const struct place *place, u64 *to)
{
	u64 value = 0;

	if (place->kind == PLACE_CONSTANT) {
		*to = place->constant;
		return 1;
	}
	if (place->kind != PLACE_REGISTER && place->kind != PLACE_MEMORY)
		return 0;
	/* The verifier allows no load from a computed place in the registers. */
	if (read_kernel(&value, sizeof(value), (const char *)regs + (place->at & 0xf8)))
		return 0;
	if (place->kind == PLACE_MEMORY
	    && read_user(&value, sizeof(value), (void *)(value + place->displacement)))
		return 0;
	value <<= place->above & 63;
	*to = place->is_signed ? (u64)((s64)value >> (place->above & 63)) : value >> (place->above & 63);
	return 1;
}

/* A static probe is reached. Its cookie: the row of the table in the lower 16 bits, and the site above
 * 32. */
SEC("uprobe")
int reached(struct pt_regs *regs)
{
	u64 cookie = attach_cookie(regs);
	u32 number = cookie >> 32;
	struct site *site = map_lookup(&SITE_TABLE, &number);
	u64 thread = pid_and_tid();
	struct mark *mark;

	if (!site || !is_wanted(cookie, thread >> 32))
		return 0;
	mark = ring_reserve(&EVENTS, sizeof(*mark), 0);
	if (!mark) {
		count_lost();
		return 0;
	}
	mark->kind = RECORD_MARK;
	mark->pid = thread >> 32;
	mark->tid = (u32)thread;
	mark->row = cookie;
	mark->known = 0;
	mark->time = monotonic_ns();
#pragma unroll
	for (int at = 0; at < ARGUMENTS; at++) {
		u64 value = 0;
		if (argument_at(regs, &site->places[at], &value))
			mark->known |= 1 << at;
		mark->arguments[at] = value;
	}
	current_comm(mark->comm, sizeof(mark->comm));
	ring_submit(mark, 0);
	return 0;
}

INLINE void tell(u32 kind, u32 pid, u32 parent)
{
	struct process *record = ring_reserve(&EVENTS, sizeof(*record), 0);
	u32 *bell;

	if (!record) {
		count_lost();
		return;
	}
	record->kind = kind;
	record->pid = pid;
	record->parent = parent;
	record->unused = 0;
	ring_submit(record, 0);
	if (kind == RECORD_EXIT)
		return;
	/* If there is no room, it rings already. */
	bell = ring_reserve(&BELL, sizeof(*bell), 0);
	if (bell) {
		*bell = pid;
		ring_submit(bell, 0);
	}
}

/* The dynamic linker has loaded or unloaded something. */
SEC("uprobe")
int loaded(struct pt_regs *regs)
{
	u32 pid = pid_and_tid() >> 32;

	/* Probes of linkers may be in processes outside our namespace. */
	if (pid && is_wanted(attach_cookie(regs), pid))
		tell(RECORD_LOADED, pid, 0);
	return 0;
}

/* The numbers of system calls on x86-64. */
enum {
	NR_READ = 0,
	NR_WRITE = 1,
	NR_READV = 19,
	NR_WRITEV = 20,
	NR_SENDTO = 44,
	NR_RECVFROM = 45,
	NR_SENDMSG = 46,
	NR_RECVMSG = 47,
};

/* Types of TLS records (RFC 8446, 5.1). */
enum {
	TLS_ALERT = 21,
	TLS_HANDSHAKE = 22,
	TLS_HEADER = 5,
};

/* The sizes in which beginnings are kept: an alert or header, a hello, a flight of TLS 1.2. */
enum { BYTES_SHORT = 64, BYTES_HELLO = 1536, BYTES_FLIGHT = 4096 };

/* So many parts of a vector are looked at, and so many records of a flight. */
enum { MOST_PARTS = 4, MOST_RECORDS = 6 };

/* `room` is one of these. */
INLINE void keep_bytes(const struct pt_regs *regs, u64 thread, u32 how, const void *from, u64 length,
		       u64 wanted, u64 room)
{
	struct bytes *record;

	/* The size must be a constant where the function is called. */
	if (room == BYTES_SHORT)
		record = ring_reserve(&EVENTS, sizeof(*record) + BYTES_SHORT, 0);
	else if (room == BYTES_HELLO)
		record = ring_reserve(&EVENTS, sizeof(*record) + BYTES_HELLO, 0);
	else
		record = ring_reserve(&EVENTS, sizeof(*record) + BYTES_FLIGHT, 0);
	if (!record) {
		count_lost();
		return;
	}
	record->kind = RECORD_BYTES;
	record->pid = thread >> 32;
	record->tid = (u32)thread;
	record->flags = how;
	record->stack = how & FLAG_GOROUTINE ? READ(regs->r14) : READ(regs->sp);
	record->time = monotonic_ns();
	record->length = length;
	record->descriptor = READ(regs->di);
	record->unused = 0;
	/* The compiler must not reckon with what it knows of the number, which the verifier does not. */
	asm volatile("" : "+r"(wanted));
	if (wanted > room)
		wanted = room;
	record->captured = wanted;
	if (read_user(record + 1, wanted, from))
		record->captured = 0;
	ring_submit(record, 0);
}

/* The length of a record with its header; 0 if it is none of a handshake. */
INLINE u64 handshake_record(u64 from)
{
	u8 header[TLS_HEADER] = {};

	if (read_user(header, TLS_HEADER, (void *)from) || header[0] != TLS_HANDSHAKE)
		return 0;
	return TLS_HEADER + ((u32)header[3] << 8 | header[4]);
}

/* How much of the last record is still to come, of records in the clear of which the first ends at `end`. */
INLINE u32 still_to_come(u64 from, u64 end, u64 length)
{
#pragma unroll
	for (int record = 0; record < MOST_RECORDS; record++) {
		u64 next;

		if (end >= length)
			return end - length;
		next = end + TLS_HEADER > length ? 0 : handshake_record(from + end);
		if (!next)
			return 0;
		end += next;
	}
	return 0;
}

/* Keeps records of a handshake, of which the first ends at `end`. */
INLINE void keep_flight(const struct pt_regs *regs, u64 thread, u32 how, u64 from, u64 length, u64 end)
{
	if (length <= BYTES_SHORT) {
		keep_bytes(regs, thread, how, (void *)from, length, length, BYTES_SHORT);
		return;
	}
	if (end >= length) {
		keep_bytes(regs, thread, how, (void *)from, length, length, BYTES_HELLO);
		return;
	}
	/* Behind the first record of TLS 1.3, everything is encrypted. */
	if (!handshake_record(from + end)) {
		keep_bytes(regs, thread, how, (void *)from, length, end, BYTES_HELLO);
		return;
	}
	/* In TLS 1.2 more records of the handshake follow. Behind a Hello and long certificates is what tells
	 * the group: if all is too long, they are kept apart. */
#pragma unroll
	for (int record = 0; record < 2; record++) {
		if (length <= BYTES_FLIGHT || !end || end >= length)
			break;
		keep_bytes(regs, thread, how, (void *)from, end, end, BYTES_HELLO);
		from += end;
		length -= end;
		end = handshake_record(from);
	}
	keep_bytes(regs, thread, how, (void *)from, length, length, BYTES_FLIGHT);
}

/* Whether these are a record of a handshake, of which there may be more in the same call. `whole` says that
 * the call has read or written nothing else. */
INLINE int keep_records(const struct pt_regs *regs, u64 thread, u32 how, u64 from, s64 result, int whole)
{
	u64 stream = (thread >> 32 << 32) | (u32)READ(regs->di) << 1 | !!(how & FLAG_WRITTEN);
	u8 start[6] = {};
	u32 *goes_on, end, left;

	if (!result) {
		/* The peer has closed the connection. */
		if (!(how & FLAG_WRITTEN))
			keep_bytes(regs, thread, how, (void *)from, 0, 0, BYTES_SHORT);
		return 0;
	}
	goes_on = map_lookup(&GOES_ON, &stream);
	end = goes_on ? *goes_on : 0;
	if (end)
		map_delete(&GOES_ON, &stream);
	if (read_user(start, TLS_HEADER, (void *)from))
		return 0;
	if ((start[0] == TLS_HANDSHAKE || start[0] == TLS_ALERT) && start[1] == 3)
		/* Also where a record should go on: then another connection has the descriptor now. */
		end = TLS_HEADER + ((u32)start[3] << 8 | start[4]);
	else if (!end)
		return 0;
	else
		start[0] = TLS_HANDSHAKE;
	left = whole ? still_to_come(from, end, result) : 0;
	if (left)
		map_update(&GOES_ON, &stream, &left, 0);
	if (start[0] == TLS_ALERT) {
		keep_bytes(regs, thread, how, (void *)from, result, result, BYTES_SHORT);
		return 0;
	}
	keep_flight(regs, thread, how, from, result, end);
	return 1;
}

/* A flight of TLS 1.2 that is written with each record in a part of its own, as GnuTLS does it: the parts
 * behind the first. */
INLINE void keep_other_parts(const struct pt_regs *regs, u64 thread, u32 how, u64 vector, u64 parts,
			     u64 left)
{
#pragma unroll
	for (u32 at = 1; at < MOST_PARTS; at++) {
		u64 part[2];
		u8 start[2] = {};

		if (at >= parts || !left)
			return;
		if (read_user(part, 16, (void *)(vector + 16 * at)))
			return;
		if (part[1] > left)
			part[1] = left;
		left -= part[1];
		/* Shorter ones tell nothing. */
		if (part[1] <= BYTES_SHORT)
			continue;
		if (read_user(start, 2, (void *)part[0]))
			return;
		if (start[0] == TLS_HANDSHAKE && start[1] == 3)
			keep_bytes(regs, thread, how, (void *)part[0], part[1], part[1], BYTES_HELLO);
	}
}

/* A call of the system returns. */
SEC("raw_tracepoint/sys_exit")
int returned(struct raw_tracepoint *context)
{
	const struct pt_regs *regs = (void *)context->args[0];
	s64 result = context->args[1];
	u64 thread, number, from, whole = result, vector = 0, parts = 0;
	u32 pid, *traced, how;

	if (result < 0 || result == 1)
		return 0;
	thread = pid_and_tid();
	pid = thread >> 32;
	traced = map_lookup(&TRACED, &pid);
	if (!traced)
		return 0;
	how = *traced;
	if (how & FLAG_SILENT)
		return 0;
	number = READ(regs->orig_ax);
	from = READ(regs->si);
	switch (number) {
	case NR_WRITE:
	case NR_SENDTO:
		how |= FLAG_WRITTEN;
		break;
	case NR_READ:
	case NR_RECVFROM:
		break;
	case NR_SENDMSG:
	case NR_RECVMSG:
	case NR_READV:
	case NR_WRITEV: {
		/* The vector and how many parts it has. */
		u64 pair[2] = { from, READ(regs->dx) };

		/* struct msghdr: they are its third and fourth word. */
		if ((number == NR_SENDMSG || number == NR_RECVMSG) &&
		    read_user(pair, 16, (void *)(from + 16)))
			return 0;
		vector = pair[0];
		parts = pair[1];
		if (number == NR_WRITEV || number == NR_SENDMSG)
			how |= FLAG_WRITTEN;
		/* struct iovec: where the first part is, and its length. */
		if (read_user(pair, 16, (void *)vector))
			return 0;
		from = pair[0];
		if ((u64)result > pair[1])
			result = pair[1];
		break;
	}
	default:
		return 0;
	}
	if (keep_records(regs, thread, how, from, result, (u64)result == whole) && (how & FLAG_WRITTEN) && parts > 1)
		keep_other_parts(regs, thread, how, vector, parts, whole - result);
	return 0;
}

/* Arguments: parent, child. */
SEC("raw_tracepoint/sched_process_fork")
int forked(struct raw_tracepoint *context)
{
	u32 parent = ids_of((void *)context->args[0]) >> 32, *traced;
	u64 thread = ids_of((void *)context->args[1]);
	u32 pid = thread >> 32;

	/* Not for each new thread. */
	if (!pid || pid != (u32)thread)
		return 0;
	/* Before its first instruction. */
	traced = map_lookup(&TRACED, &parent);
	if (traced && *traced & FLAG_FORKS)
		map_update(&TRACED, &pid, traced, 0);
	tell(RECORD_FORK, pid, parent);
	return 0;
}

SEC("raw_tracepoint/sched_process_exec")
int executed(struct raw_tracepoint *context)
{
	u32 pid = pid_and_tid() >> 32;

	/* Processes outside our namespace have no number in it. */
	if (pid)
		tell(RECORD_EXEC, pid, 0);
	return 0;
}

SEC("raw_tracepoint/sched_process_exit")
int ended(struct raw_tracepoint *context)
{
	u64 thread = pid_and_tid();
	u32 pid = thread >> 32;

	if (pid == (u32)thread && map_lookup(&TRACED, &pid))
		tell(RECORD_EXIT, pid, 0);
	return 0;
}
