//! The registers that kernels are printed for.

/// A width of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 256-bit registers, four lanes (AVX-512 VL and IFMA).
    Ymm,
    /// 512-bit registers, eight lanes (AVX-512 F and IFMA).
    Zmm,
}

impl Width {
    /// Every width, in the order in which the build assembles them.
    pub const ALL: [Self; 2] = [Self::Ymm, Self::Zmm];

    /// 64-bit lanes of a register.
    pub const fn lanes(self) -> usize {
        match self {
            Self::Ymm => 4,
            Self::Zmm => 8,
        }
    }

    /// The width with so many lanes.
    pub fn with_lanes(lanes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|width| width.lanes() == lanes)
    }

    /// Bytes of a register.
    pub(crate) const fn bytes(self) -> usize {
        8 * self.lanes()
    }

    /// What the assembler calls registers of this width, in front of their number.
    pub(crate) const fn register(self) -> &'static str {
        match self {
            Self::Ymm => "ymm",
            Self::Zmm => "zmm",
        }
    }
}
