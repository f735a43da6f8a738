//! Decides to which socket of a reuseport group a datagram goes, and builds the classic BPF program by which the kernel
//! decides the same. Pure.
//!
//! The sockets of a group belong to processes, one socket a worker: to one process, and while a new one takes over
//! (docs/adr/0020) also to older ones that drain. A generation number identifies a process.
//!
//! | packet (RFC 8999) | goes to |
//! |---|---|
//! | short header | the worker that the connection ID names, of the process that it names |
//! | long header with a connection ID that looks like ours | the same |
//! | any other long header: a client's first packets | a worker of the newest process, by four bytes of the ID |
//! | short header with an unknown ID, or too short to decide | any worker of the newest process |
//!
//! A client's first packets have a connection ID of its own choice, with at least eight random bytes (RFC 9000 §7.2):
//! by it clients are spread over workers, and a client's packets stay together whatever their address. The program
//! decides every datagram: the kernel's hash would use sockets of all processes.
//!
//! IDs with a server ID (docs/adr/0043-server-ids.md) have generation and worker in their last two bytes, masked by a
//! hash of the bytes before; the program computes the hash. Classic BPF has an accumulator, an index register and 16
//! words of memory, and the kernel rejects a program that may read a word before it is written, on any path.
//!
//! The kernel chooses once for datagrams that GRO has joined, which come from one address and port. They belong to one
//! worker, unless a client uses one port for several connections: the wrong worker drops such a datagram, and the
//! client sends it again.

use libc::sock_filter;
use litequic_base::half_sip_hash::{self, FINAL_ROUNDS, FINALIZATION, ROUNDS};
use litequic_base::proxy_header::{FIXED_LEN, LEN_OFFSET, SIGNATURE};
use std::ops::Range;

/// RFC 8999 §5.1: the first bit of a long header's first byte is set.
const LONG_HEADER: u32 = 0x80;
/// Offset of the destination connection ID's length in a long header (RFC 8999 §5.1).
const ID_LEN_OFFSET: u32 = 5;
/// Offset of the destination connection ID in a long header.
const LONG_ID_OFFSET: u32 = 6;
/// Offset of the destination connection ID in a short header (RFC 8999 §5.2).
const SHORT_ID_OFFSET: u32 = 1;
/// Offset of the four bytes by which long headers are spread over workers: in the ID's second half, as some clients and
/// balancers give the first bytes a meaning.
const SPREAD_OFFSET: u32 = LONG_ID_OFFSET + 4;
/// Offset by which a program loads a random number (linux/filter.h: SKF_AD_OFF + SKF_AD_RANDOM).
const RANDOM_OFFSET: u32 = (-0x1000_i32 + 56).cast_unsigned();
/// Bytes of a word that HalfSipHash reads.
const HASH_WORD_BYTES: u32 = 4;

/// Cells of the program's memory: the hash's four state words, then hashed words, generation and worker, and one cell
/// that a rotation uses.
const V0: u32 = 0;
const V1: u32 = 1;
const V2: u32 = 2;
const V3: u32 = 3;
const FIRST_WORD_CELL: u32 = 4;
/// Offset of the packet in the datagram, and the packet's length: written only if a PROXY protocol header is skipped.
const PACKET_OFFSET_CELL: u32 = 9;
const PACKET_LEN_CELL: u32 = 10;
const ISSUER_CELL: u32 = 14;
const ROTATED_CELL: u32 = 15;

/// More than the bytes of any datagram, those that GRO has joined included.
const MAX_DATAGRAM_LEN: u32 = 1 << 20;

/// Largest number of processes in a group. Each takes six instructions, of which the kernel allows 4096 (BPF_MAXINSNS).
pub(super) const MAX_GENERATIONS: usize = 32;

/// The layout of the connection IDs that litequic issues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// Bytes of every ID, at most 20.
    pub id_len: u8,
    /// Bits of the first byte that are the same in every ID, and their value.
    pub first_byte: (u8, u8),
    /// Offset of the generation in the ID; the worker's index is the next byte.
    pub issuer_offset: u8,
    /// Mask over generation and worker; `None` if they are not masked.
    pub mask: Option<SteeringMask>,
    /// Whether a PROXY protocol header of version 2 in front of a packet is skipped.
    pub skips_proxy_header: bool,
}

/// Mask over generation and worker: the last two bytes of HalfSipHash-1-3 over a part of the ID, read as words in
/// network order, of which the last one may overlap the one before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeringMask {
    /// Key of the hash.
    pub key: [u32; 2],
    /// The bytes of the ID that are hashed: 4 to 20.
    pub hashed: Range<u8>,
}

impl SteeringMask {
    /// Offsets in the ID of the words to hash.
    fn word_offsets(&self) -> impl Iterator<Item = u32> {
        let (begin, end) = (u32::from(self.hashed.start), u32::from(self.hashed.end));
        let last = end.saturating_sub(HASH_WORD_BYTES);
        (begin..end).step_by(HASH_WORD_BYTES as usize).map(move |word| word.min(last))
    }
}

/// Sockets of one process in a group: `workers` sockets from index `first` on, in the order of bind(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// Number of the process in its connection IDs.
    pub number: u8,
    /// Index of the first socket.
    pub first: usize,
    /// Number of sockets, between 1 and 256.
    pub workers: usize,
}

/// Targets of jumps. All jumps go forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JumpLabel {
    Packet,
    Long,
    CheckId,
    Unknown,
    SpreadUnknown,
    Spread,
    Random,
    Choose,
    /// The next process of the group.
    Next(usize),
}

impl Steering {
    /// The program for a group of the processes `all`, of which `newest` gets new connections. The kernel runs it on
    /// the UDP payload. A load beyond the packet would end the program with 0, the first socket: the length is checked
    /// before.
    pub(super) fn steering_program(&self, all: &[Generation], newest: &Generation) -> Vec<sock_filter> {
        let (len, (bits, first_byte)) = (u32::from(self.id_len), self.first_byte);
        let all = all.get(..MAX_GENERATIONS.min(all.len())).unwrap_or_default();
        let mut program = Assembler::default();
        if self.skips_proxy_header {
            emit_header_skip(&mut program);
        }
        self.load_packet_len(&mut program);
        program.jump_unless(libc::BPF_JGE, SHORT_ID_OFFSET + len, JumpLabel::Random);
        self.load_packet_byte(&mut program, 0);
        program.jump_if(libc::BPF_JSET, LONG_HEADER, JumpLabel::Long);
        self.load_packet_index(&mut program, SHORT_ID_OFFSET);
        program.emit_jump(JumpLabel::CheckId);

        program.place_label(JumpLabel::Long);
        self.load_packet_len(&mut program);
        program.jump_unless(libc::BPF_JGE, SPREAD_OFFSET + HASH_WORD_BYTES, JumpLabel::Random);
        self.load_packet_byte(&mut program, ID_LEN_OFFSET);
        program.jump_unless(libc::BPF_JEQ, len, JumpLabel::Spread);
        self.load_packet_len(&mut program);
        program.jump_unless(libc::BPF_JGE, LONG_ID_OFFSET + len, JumpLabel::Random);
        self.load_packet_index(&mut program, LONG_ID_OFFSET);

        program.place_label(JumpLabel::CheckId);
        program.emit(LOAD_INDEXED_BYTE, 0);
        program.emit(AND, bits.into());
        program.jump_unless(libc::BPF_JEQ, first_byte.into(), JumpLabel::Unknown);
        self.load_issuer(&mut program);
        for (n, one) in all.iter().enumerate() {
            // The difference to the first worker is the worker's index if it is less than the number of workers.
            program.emit(LOAD_MEMORY, ISSUER_CELL);
            program.emit(SUBTRACT, u32::from(one.number) << 8);
            program.jump_if(libc::BPF_JGE, to_operand(one.workers), JumpLabel::Next(n));
            program.emit(ADD, to_operand(one.first));
            program.emit(RETURN_ACCUMULATOR, 0);
            program.place_label(JumpLabel::Next(n));
        }

        program.place_label(JumpLabel::Unknown);
        self.load_packet_byte(&mut program, 0);
        program.jump_if(libc::BPF_JSET, LONG_HEADER, JumpLabel::SpreadUnknown);
        program.place_label(JumpLabel::Random);
        program.emit(LOAD_WORD, RANDOM_OFFSET);
        program.emit_jump(JumpLabel::Choose);
        program.place_label(JumpLabel::SpreadUnknown);
        // With a server ID only the last bytes differ between clients.
        let last = if self.mask.is_some() { LONG_ID_OFFSET + len - HASH_WORD_BYTES } else { SPREAD_OFFSET };
        self.load_packet_word(&mut program, last);
        program.emit_jump(JumpLabel::Choose);
        program.place_label(JumpLabel::Spread);
        self.load_packet_word(&mut program, SPREAD_OFFSET);
        program.place_label(JumpLabel::Choose);
        program.emit(MODULO, to_operand(newest.workers.max(1)));
        program.emit(ADD, to_operand(newest.first));
        program.emit(RETURN_ACCUMULATOR, 0);
        program.resolve_jumps()
    }

    /// Loads the packet's length.
    fn load_packet_len(&self, program: &mut Assembler) {
        if self.skips_proxy_header {
            program.emit(LOAD_MEMORY, PACKET_LEN_CELL);
        } else {
            program.emit(LOAD_LEN, 0);
        }
    }

    /// Loads the byte at `offset` of the packet. Changes the index register.
    fn load_packet_byte(&self, program: &mut Assembler, offset: u32) {
        if self.skips_proxy_header {
            program.emit(LOAD_INDEX_FROM_MEMORY, PACKET_OFFSET_CELL);
            program.emit(LOAD_INDEXED_BYTE, offset);
        } else {
            program.emit(LOAD_BYTE, offset);
        }
    }

    /// Loads the four bytes at `offset` of the packet. Changes the index register.
    fn load_packet_word(&self, program: &mut Assembler, offset: u32) {
        if self.skips_proxy_header {
            program.emit(LOAD_INDEX_FROM_MEMORY, PACKET_OFFSET_CELL);
            program.emit(LOAD_INDEXED_WORD, offset);
        } else {
            program.emit(LOAD_WORD, offset);
        }
    }

    /// Sets the index register to `offset` of the packet.
    fn load_packet_index(&self, program: &mut Assembler, offset: u32) {
        if self.skips_proxy_header {
            program.emit(LOAD_MEMORY, PACKET_OFFSET_CELL);
            program.emit(ADD, offset);
            program.emit(ACCUMULATOR_TO_INDEX, 0);
        } else {
            program.emit(SET_INDEX, offset);
        }
    }

    /// Stores generation and worker, 16 bits, in memory. The index register holds the ID's offset.
    fn load_issuer(&self, program: &mut Assembler) {
        program.emit(LOAD_INDEXED_HALF, self.issuer_offset.into());
        program.emit(STORE_MEMORY, ISSUER_CELL);
        let Some(mask) = &self.mask else { return };
        for (place, word) in (FIRST_WORD_CELL..).zip(mask.word_offsets()) {
            program.emit(LOAD_INDEXED_WORD, word);
            program.emit(STORE_MEMORY, place);
        }
        for (place, value) in [V0, V1, V2, V3].into_iter().zip(half_sip_hash::initial_state(mask.key)) {
            program.emit(LOAD_VALUE, value);
            program.emit(STORE_MEMORY, place);
        }
        for (place, _) in (FIRST_WORD_CELL..).zip(mask.word_offsets()) {
            program.combine_words(V3, place, XOR);
            (0..ROUNDS).for_each(|_| emit_round(program));
            program.combine_words(V0, place, XOR);
        }
        program.emit(LOAD_MEMORY, V2);
        program.emit(XOR, FINALIZATION);
        program.emit(STORE_MEMORY, V2);
        (0..FINAL_ROUNDS).for_each(|_| emit_round(program));
        program.combine_words(V1, V3, XOR);
        program.emit(AND, 0xffff);
        program.emit(LOAD_INDEX_FROM_MEMORY, ISSUER_CELL);
        program.emit(XOR | libc::BPF_X, 0);
        program.emit(STORE_MEMORY, ISSUER_CELL);
    }
}

/// Stores the packet's offset and length in memory: behind a PROXY protocol header, if there is a whole one.
fn emit_header_skip(program: &mut Assembler) {
    program.emit(LOAD_VALUE, 0);
    program.emit(STORE_MEMORY, PACKET_OFFSET_CELL);
    program.emit(LOAD_LEN, 0);
    program.emit(STORE_MEMORY, PACKET_LEN_CELL);
    program.jump_unless(libc::BPF_JGE, FIXED_LEN.into(), JumpLabel::Packet);
    for (offset, word) in (0..).step_by(4).zip(SIGNATURE.as_chunks().0) {
        program.emit(LOAD_WORD, offset);
        program.jump_unless(libc::BPF_JEQ, u32::from_be_bytes(*word), JumpLabel::Packet);
    }
    program.emit(LOAD_HALF, LEN_OFFSET.into());
    program.emit(ADD, FIXED_LEN.into());
    program.emit(STORE_MEMORY, PACKET_OFFSET_CELL);
    // A header that is longer than its datagram leaves a length below zero: a large number.
    program.emit(ACCUMULATOR_TO_INDEX, 0);
    program.emit(LOAD_LEN, 0);
    program.emit(SUBTRACT | libc::BPF_X, 0);
    program.emit(STORE_MEMORY, PACKET_LEN_CELL);
    program.jump_if(libc::BPF_JGE, MAX_DATAGRAM_LEN, JumpLabel::Random);
    program.place_label(JumpLabel::Packet);
}

/// Emits a round of HalfSipHash.
fn emit_round(program: &mut Assembler) {
    emit_mix(program, V0, V1, 5);
    emit_rotation(program, V0, 16);
    emit_mix(program, V2, V3, 8);
    emit_mix(program, V0, V3, 7);
    emit_mix(program, V2, V1, 13);
    emit_rotation(program, V2, 16);
}

/// Emits `one += other; other = (other <<< bits) ^ one`.
fn emit_mix(program: &mut Assembler, one: u32, other: u32, bits: u32) {
    program.combine_words(one, other, ADD);
    program.emit(LOAD_INDEX_FROM_MEMORY, other);
    rotate_index(program, bits);
    program.emit(LOAD_INDEX_FROM_MEMORY, one);
    program.emit(XOR | libc::BPF_X, 0);
    program.emit(STORE_MEMORY, other);
}

/// Emits `one = one <<< bits`.
fn emit_rotation(program: &mut Assembler, one: u32, bits: u32) {
    program.emit(LOAD_INDEX_FROM_MEMORY, one);
    rotate_index(program, bits);
    program.emit(STORE_MEMORY, one);
}

/// Emits a rotation of the index register into the accumulator.
fn rotate_index(program: &mut Assembler, bits: u32) {
    program.emit(INDEX_TO_ACCUMULATOR, 0);
    program.emit(SHIFT_LEFT, bits);
    program.emit(STORE_MEMORY, ROTATED_CELL);
    program.emit(INDEX_TO_ACCUMULATOR, 0);
    program.emit(SHIFT_RIGHT, u32::BITS - bits);
    program.emit(LOAD_INDEX_FROM_MEMORY, ROTATED_CELL);
    program.emit(OR | libc::BPF_X, 0);
}

/// Assembles a program with labels. A conditional jump can skip at most 255 instructions: each skips a single one, an
/// unconditional jump to the label.
#[derive(Debug, Default)]
struct Assembler {
    instructions: Vec<sock_filter>,
    jumps: Vec<(usize, JumpLabel)>,
    labels: Vec<(JumpLabel, usize)>,
}

impl Assembler {
    fn emit(&mut self, code: u32, operand: u32) {
        self.emit_conditional(code, operand, 0, 0);
    }

    /// Emits an instruction that skips `if_true` or `if_false` others, if it is a conditional jump.
    #[expect(clippy::cast_possible_truncation, reason = "codes have 8 bits")]
    fn emit_conditional(&mut self, code: u32, operand: u32, if_true: u8, if_false: u8) {
        self.instructions.push(sock_filter { code: code as u16, jt: if_true, jf: if_false, k: operand });
    }

    fn place_label(&mut self, label: JumpLabel) {
        self.labels.push((label, self.instructions.len()));
    }

    fn emit_jump(&mut self, label: JumpLabel) {
        self.jumps.push((self.instructions.len(), label));
        self.emit(libc::BPF_JMP | libc::BPF_JA, 0);
    }

    /// Emits a jump to `label`, taken if the accumulator meets `condition` with `operand`.
    fn jump_if(&mut self, condition: u32, operand: u32, label: JumpLabel) {
        self.emit_conditional(libc::BPF_JMP | condition, operand, 0, 1);
        self.emit_jump(label);
    }

    /// Emits a jump to `label`, taken unless the accumulator meets `condition` with `operand`.
    fn jump_unless(&mut self, condition: u32, operand: u32, label: JumpLabel) {
        self.emit_conditional(libc::BPF_JMP | condition, operand, 1, 0);
        self.emit_jump(label);
    }

    /// Emits `operation` on two words of memory; the first word and the accumulator get the result.
    fn combine_words(&mut self, one: u32, other: u32, operation: u32) {
        self.emit(LOAD_MEMORY, one);
        self.emit(LOAD_INDEX_FROM_MEMORY, other);
        self.emit(operation | libc::BPF_X, 0);
        self.emit(STORE_MEMORY, one);
    }

    /// Returns the instructions, with the number of instructions that each jump skips.
    fn resolve_jumps(mut self) -> Vec<sock_filter> {
        for (from, label) in self.jumps {
            let target = self.labels.iter().find(|(one, _)| *one == label).map(|(_, target)| *target);
            if let (Some(jump), Some(target)) = (self.instructions.get_mut(from), target) {
                jump.k = to_operand(target.saturating_sub(from + 1));
            }
        }
        self.instructions
    }
}

/// Converts a number of sockets or instructions, at most some thousands.
fn to_operand(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Codes of instructions (linux/filter.h), named after what they do to accumulator and index register.
const LOAD_LEN: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;
const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_VALUE: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_IMM;
const LOAD_MEMORY: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_MEM;
/// Loads at an offset from the index register, which holds the offset of the packet or of its ID.
const LOAD_INDEXED_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_IND;
const LOAD_INDEXED_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const LOAD_INDEXED_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_IND;
const STORE_MEMORY: u32 = libc::BPF_ST;
const SET_INDEX: u32 = libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM;
const LOAD_INDEX_FROM_MEMORY: u32 = libc::BPF_LDX | libc::BPF_W | libc::BPF_MEM;
const ACCUMULATOR_TO_INDEX: u32 = libc::BPF_MISC | libc::BPF_TAX;
const INDEX_TO_ACCUMULATOR: u32 = libc::BPF_MISC | libc::BPF_TXA;
/// Operations on the accumulator and the instruction's operand; with [`libc::BPF_X`] on the index register instead.
const ADD: u32 = libc::BPF_ALU | libc::BPF_ADD;
const SUBTRACT: u32 = libc::BPF_ALU | libc::BPF_SUB;
const MODULO: u32 = libc::BPF_ALU | libc::BPF_MOD;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND;
const OR: u32 = libc::BPF_ALU | libc::BPF_OR;
const XOR: u32 = libc::BPF_ALU | libc::BPF_XOR;
const SHIFT_LEFT: u32 = libc::BPF_ALU | libc::BPF_LSH;
const SHIFT_RIGHT: u32 = libc::BPF_ALU | libc::BPF_RSH;
const RETURN_ACCUMULATOR: u32 = libc::BPF_RET | libc::BPF_A;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use litequic_base::half_sip_hash::half_sip_hash;
    use proptest::prelude::*;

    const STEERING: Steering =
        Steering { id_len: 16, first_byte: (0xff, 0xef), issuer_offset: 1, mask: None, skips_proxy_header: false };
    const OLD: Generation = Generation { number: 7, first: 0, workers: 4 };
    const NEW: Generation = Generation { number: 8, first: 4, workers: 3 };
    /// Random number that the tests' kernel loads.
    const DICE: u32 = 1_000_003;

    /// Steering by IDs of `id_len` bytes, whose bytes `hashed` mask the last two.
    pub(crate) fn with_mask(id_len: u8, hashed: Range<u8>) -> Steering {
        let mask = SteeringMask { key: [0x0123_4567, 0x89ab_cdef], hashed };
        let (first_byte, issuer_offset) = ((0x1f, id_len - 1), id_len - 2);
        Steering { id_len, first_byte, issuer_offset, mask: Some(mask), skips_proxy_header: false }
    }

    /// Layouts with a server ID: that of AWS' load balancer, the shortest and the longest ones, and a block with a key.
    pub(crate) fn masked_layouts() -> [Steering; 5] {
        [(16, 9..14), (9, 2..7), (20, 13..18), (19, 1..17), (20, 1..18)].map(|(len, hashed)| with_mask(len, hashed))
    }

    /// Computes the mask over generation and worker of `id`.
    fn mask_of(mask: &SteeringMask, id: &[u8]) -> u16 {
        let hashed = &id[usize::from(mask.hashed.start)..usize::from(mask.hashed.end)];
        let (whole, rest) = hashed.as_chunks::<4>();
        let last = (!rest.is_empty()).then(|| *hashed.last_chunk().unwrap());
        let words = whole.iter().copied().chain(last).map(u32::from_be_bytes);
        (half_sip_hash(mask.key, words) & 0xffff) as u16
    }

    /// Changes any `id` into one that names `generation` and `worker`.
    pub(crate) fn write_named_id(steering: &Steering, rotation: u8, generation: u8, worker: u8, id: &mut [u8]) {
        let (bits, value) = steering.first_byte;
        id[0] = rotation << 5 & !bits | value;
        let mask = steering.mask.as_ref().map_or(0, |mask| mask_of(mask, id));
        let issuer = u16::from_be_bytes([generation, worker]) ^ mask;
        let at = usize::from(steering.issuer_offset);
        id[at..at + 2].copy_from_slice(&issuer.to_be_bytes());
    }

    /// Chooses the socket for a UDP payload by the rule, in Rust.
    fn steer_by_rule(steering: &Steering, all: &[Generation], newest: &Generation, datagram: &[u8]) -> usize {
        let choose = |by: u32| newest.first + by as usize % newest.workers;
        let (len, (bits, value)) = (usize::from(steering.id_len), steering.first_byte);
        let named = |id: &[u8]| {
            (id[0] & bits == value).then_some(())?;
            let mask = steering.mask.as_ref().map_or(0, |mask| mask_of(mask, id));
            let issuer = id[usize::from(steering.issuer_offset)..].first_chunk().unwrap();
            let [generation, worker] = (u16::from_be_bytes(*issuer) ^ mask).to_be_bytes();
            let owner = all.iter().find(|one| one.number == generation)?;
            (usize::from(worker) < owner.workers).then_some(owner.first + usize::from(worker))
        };
        let word = |at: usize| u32::from_be_bytes(*datagram[at..].first_chunk().unwrap());
        match datagram {
            short if short.len() < 1 + len => choose(DICE),
            short if short[0] & 0x80 == 0 => named(&short[1..]).unwrap_or(choose(DICE)),
            long if long.len() < 14 => choose(DICE),
            long if usize::from(long[5]) != len => choose(word(10)),
            long if long.len() < 6 + len => choose(DICE),
            long => {
                let spread = if steering.mask.is_some() { word(6 + len - 4) } else { word(10) };
                named(&long[6..]).unwrap_or(choose(spread))
            }
        }
    }

    /// Runs a program as the kernel does (net/core/filter.c), and returns the chosen socket.
    fn run_program(program: &[sock_filter], datagram: &[u8]) -> usize {
        let (mut accumulator, mut index) = (0_u32, 0_u32);
        let mut memory = [None; 16];
        let mut at = 0;
        let load = |offset: usize, len: usize| {
            let bytes = datagram.get(offset..offset + len)?;
            Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
        };
        loop {
            let i = program[at];
            at += 1;
            let offset = i.k as usize;
            let indexed = offset + index as usize;
            let mut test = |true_branch: bool| at += usize::from(if true_branch { i.jt } else { i.jf });
            let loaded = match u32::from(i.code) {
                0x20 if i.k == 0xffff_f038 => Some(DICE),
                0x20 => load(offset, 4),
                0x28 => load(offset, 2),
                0x30 => load(offset, 1),
                0x40 => load(indexed, 4),
                0x48 => load(indexed, 2),
                0x50 => load(indexed, 1),
                _ => Some(0),
            };
            let Some(loaded) = loaded else { return 0 };
            match u32::from(i.code) {
                0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 => accumulator = loaded,
                0x00 => accumulator = i.k,
                0x80 => accumulator = u32::try_from(datagram.len()).unwrap(),
                0x60 => accumulator = memory[offset].expect("written before it is read"),
                0x61 => index = memory[offset].expect("written before it is read"),
                0x02 => memory[offset] = Some(accumulator),
                0x01 => index = i.k,
                0x07 => index = accumulator,
                0x87 => accumulator = index,
                0x04 => accumulator = accumulator.wrapping_add(i.k),
                0x0c => accumulator = accumulator.wrapping_add(index),
                0x14 => accumulator = accumulator.wrapping_sub(i.k),
                0x1c => accumulator = accumulator.wrapping_sub(index),
                0x4c => accumulator |= index,
                0x54 => accumulator &= i.k,
                0x64 => accumulator <<= i.k,
                0x74 => accumulator >>= i.k,
                0xa4 => accumulator ^= i.k,
                0xac => accumulator ^= index,
                0x94 => accumulator %= i.k,
                0x05 => at += offset,
                0x15 => test(accumulator == i.k),
                0x35 => test(accumulator >= i.k),
                0x45 => test(accumulator & i.k != 0),
                0x16 => return accumulator as usize,
                code => panic!("unknown instruction {code:#x}"),
            }
        }
    }

    fn short_packet(generation: u8, worker: u8) -> Vec<u8> {
        [&[0x41, 0xef, generation, worker], &[0; 40][..]].concat()
    }

    /// A long-header packet, spread by the number 5.
    fn long(id_len: u8, first_byte: u8, generation: u8, worker: u8) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, id_len, first_byte, generation, worker, 1, 0, 0, 0, 5], &[0; 30][..]].concat()
    }

    #[test]
    fn each_kind_of_packet_goes_where_the_table_says() {
        let (dice, spread) = (4 + DICE as usize % 3, 4 + 5 % 3);
        let table = [
            ("short header of the old process", short_packet(7, 3), 3),
            ("of its first worker", short_packet(7, 0), 0),
            ("of the new process", short_packet(8, 2), 6),
            ("of a worker that does not exist", short_packet(8, 3), dice),
            ("of a process that is gone", short_packet(6, 0), dice),
            ("of another layout", [&[0x41, 0x0f], &short_packet(7, 3)[2..]].concat(), dice),
            ("no whole ID", short_packet(7, 3)[..16].to_vec(), dice),
            ("just an ID", short_packet(7, 3)[..17].to_vec(), 3),
            ("nothing", vec![], dice),
            ("long header, our ID, of the old process", long(16, 0xef, 7, 3), 3),
            ("of the new process", long(16, 0xef, 8, 1), 5),
            ("of a worker that does not exist", long(16, 0xef, 7, 4), spread),
            ("of a process that is gone", long(16, 0xef, 6, 0), spread),
            ("another first byte", long(16, 0xee, 7, 3), spread),
            ("another length", long(8, 0xef, 7, 3), spread),
            ("cut where it just is spread", long(8, 0xef, 7, 3)[..17].to_vec(), spread),
            ("cut before", long(8, 0xef, 7, 3)[..16].to_vec(), dice),
            ("cut within our ID", long(16, 0xef, 7, 3)[..21].to_vec(), dice),
        ];
        for (what, datagram, expected) in table {
            assert_eq!(run_program(&STEERING.steering_program(&[OLD, NEW], &NEW), &datagram), expected, "{what}");
            assert_eq!(steer_by_rule(&STEERING, &[OLD, NEW], &NEW, &datagram), expected, "{what} (rule)");
        }
    }

    #[test]
    fn ids_with_a_server_id_are_steered_and_unknown_ones_spread() {
        for steering in masked_layouts() {
            let program = steering.steering_program(&[OLD, NEW], &NEW);
            let mut spread = [0_u32; 7];
            for n in 0..=u8::MAX {
                // All IDs have one server ID, and differ behind it.
                let mut id: Vec<u8> = (0..steering.id_len).map(|at| if at < 9 { at } else { n ^ at }).collect();
                let hashed = steering.mask.as_ref().unwrap().hashed.clone();
                id[usize::from(hashed.end) - 1] = n;
                let (generation, worker) = if n % 2 == 0 { (7, n % 4) } else { (8, n % 3) };
                let socket = usize::from(if n % 2 == 0 { worker } else { 4 + worker });
                let short = |id: &[u8]| [&[0x41], id, &[0; 20]].concat();
                let long = |id: &[u8]| [&[0xc0, 0, 0, 0, 1, steering.id_len], id, &[0; 20]].concat();
                write_named_id(&steering, n % 7, generation, worker, &mut id);
                assert_eq!((run_program(&program, &short(&id)), run_program(&program, &long(&id))), (socket, socket));
                write_named_id(&steering, n % 7, 6, worker, &mut id);
                assert_eq!(run_program(&program, &short(&id)), 4 + DICE as usize % 3);
                spread[run_program(&program, &long(&id))] += 1;
            }
            assert_eq!(spread[..4], [0; 4]);
            assert!(spread[4..].iter().all(|count| *count > 50), "{spread:?}");
        }
    }

    #[test]
    fn the_longest_program_is_within_the_kernels_limits() {
        let all = generations(&[1; MAX_GENERATIONS]);
        let lengths = [STEERING, with_mask(16, 9..14), with_mask(19, 1..17), with_mask(20, 1..18)]
            .map(|steering| [&all[..1], &all[..2], &all].map(|some| steering.steering_program(some, &all[0]).len()));
        assert_eq!(lengths, [[41, 47, 227], [470, 476, 656], [646, 652, 832], [734, 740, 920]]);
        let skipping = Steering { skips_proxy_header: true, ..with_mask(20, 1..18) };
        assert_eq!(skipping.steering_program(&all, &all[0]).len(), 920 + 33);
    }

    /// A PROXY protocol header with `len` bytes behind its first 16.
    fn proxy_header(len: u16) -> Vec<u8> {
        let fixed = [b"\r\n\r\n\0\r\nQUIT\n\x21\x12", &len.to_be_bytes()[..]].concat();
        [fixed, vec![0xef; len.into()]].concat()
    }

    #[test]
    fn a_packet_is_found_behind_a_whole_proxy_header_alone() {
        let skipping = Steering { skips_proxy_header: true, ..STEERING };
        let program = skipping.steering_program(&[OLD, NEW], &NEW);
        let dice = 4 + DICE as usize % 3;
        for packet in [short_packet(7, 3), long(16, 0xef, 7, 3)] {
            assert_eq!(run_program(&program, &packet), 3, "without a header");
            for len in [12, 19, 36, 43, 3_855] {
                let datagram = [proxy_header(len), packet.clone()].concat();
                assert_eq!(run_program(&program, &datagram), 3, "{len}");
                assert_ne!(run_program(&STEERING.steering_program(&[OLD, NEW], &NEW), &datagram), 3, "{len}");
                assert_eq!(run_program(&program, &datagram[..usize::from(len) + 15]), dice, "{len}: cut");
                assert_eq!(run_program(&program, &proxy_header(len)), dice, "{len}: nothing behind it");
            }
        }
    }

    fn datagrams() -> impl Strategy<Value = Vec<u8>> {
        let anything = proptest::collection::vec(any::<u8>(), 0..64);
        let nearly_right = (any::<u8>(), 14_u8..19, 0xee_u8..=0xef, 0_u8..40, any::<u8>(), any::<u32>(), 0_usize..49)
            .prop_map(|(first, id_len, byte, generation, worker, spread, len)| {
                let mut datagram = long(id_len, byte, generation, worker);
                datagram[0] = first;
                datagram[10..14].copy_from_slice(&spread.to_be_bytes());
                if first & 0x80 == 0 {
                    datagram[1..4].copy_from_slice(&[byte, generation, worker]);
                }
                datagram.truncate(len);
                datagram
            });
        prop_oneof![anything, nearly_right]
    }

    /// Processes with these numbers of workers, one after the other in the group.
    fn generations(workers: &[usize]) -> Vec<Generation> {
        let mut first = 0;
        let one = |(&workers, number): (&usize, u8)| {
            first += workers;
            Generation { number, first: first - workers, workers }
        };
        workers.iter().zip(0_u8..).map(one).collect()
    }

    proptest! {
        #[test]
        fn the_program_follows_the_rule(
            datagram in datagrams(),
            id_len in 14_u8..=18,
            workers in proptest::collection::vec(1_usize..=256, 1..=MAX_GENERATIONS),
        ) {
            let steering = Steering { id_len, ..STEERING };
            let all = generations(&workers);
            let newest = all.last().unwrap();
            prop_assert_eq!(run_program(&steering.steering_program(&all, newest), &datagram), steer_by_rule(&steering, &all, newest, &datagram));
        }

        #[test]
        fn a_program_that_skips_headers_follows_the_rule_for_what_is_behind(
            packet in datagrams(), len in 0_u16..300, has_header: bool, is_masked: bool,
        ) {
            let steering = if is_masked { with_mask(16, 9..14) } else { STEERING };
            let steering = Steering { skips_proxy_header: true, ..steering };
            let datagram = if has_header { [proxy_header(len), packet.clone()].concat() } else { packet.clone() };
            let (program, expected) =
                (steering.steering_program(&[OLD, NEW], &NEW), steer_by_rule(&steering, &[OLD, NEW], &NEW, &packet));
            prop_assert_eq!(run_program(&program, &datagram), expected);
        }

        #[test]
        fn the_program_follows_the_rule_with_a_server_id(
            mut datagram in proptest::collection::vec(any::<u8>(), 50),
            (id_len, hashed) in (0..5_usize).prop_map(|n| [(16, 9..14), (9, 2..7), (20, 13..18), (19, 1..17), (20, 1..18)][n].clone()),
            key: [u32; 2],
            (is_own, is_cut, len) in (any::<[bool; 1]>(), any::<u8>(), 0_usize..50),
            (rotation, generation, worker) in (0_u8..8, 0_u8..40, any::<u8>()),
            workers in proptest::collection::vec(1_usize..=256, 1..=MAX_GENERATIONS),
        ) {
            let mut steering = with_mask(id_len, hashed);
            steering.mask.as_mut().unwrap().key = key;
            let all = generations(&workers);
            let newest = all.last().unwrap();
            if is_own == [true] {
                datagram[5] = if datagram[0] & 0x80 == 0 { datagram[5] } else { id_len };
                let at = if datagram[0] & 0x80 == 0 { 1 } else { 6 };
                write_named_id(&steering, rotation, generation, worker, &mut datagram[at..at + usize::from(id_len)]);
            }
            if is_cut < 64 {
                datagram.truncate(len);
            }
            prop_assert_eq!(run_program(&steering.steering_program(&all, newest), &datagram), steer_by_rule(&steering, &all, newest, &datagram));
        }
    }
}
