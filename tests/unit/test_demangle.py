# SPDX-License-Identifier: MIT
"""C++ and Rust names: known manglings, the ABIs' own examples, another demangler, and names made to hurt."""

from __future__ import annotations

import random
import string
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from ptweave.decode.demangle import MAX_NAME, MAX_TEXT, demangle
from ptweave.decode.elf import Elf
from ptweave.decode.symbols import functions_of


@pytest.mark.parametrize(("mangled", "plain"), [
    ("main", "main"), ("_start", "_start"), ("", ""), ("@", "@"),
    ("_ZN3foo3barEi", "foo::bar(int)"),
    ("_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back(int&&)"),
    ("_ZN3foo3barEi@plt", "foo::bar(int)@plt"),
    ("_Z3foov.cold", "foo() [clone .cold]"), ("_Z3foov.part.0", "foo() [clone .part.0]"),
    ("_Z3fooi.isra.0.constprop.1", "foo(int) [clone .isra.0] [clone .constprop.1]"),
    ("main.cold", "main.cold"), ("helper.isra.0", "helper.isra.0"),
    ("memcpy@@GLIBC_2.14", "memcpy"), ("memcpy@GLIBC_2.2.5", "memcpy"), ("printf@plt", "printf@plt"),
    ("_ZNKSt5ctypeIcE8do_widenEc@@GLIBCXX_3.4", "std::ctype<char>::do_widen(char) const"),
    ("_ZN", "_ZN"), ("_Z", "_Z"), ("_R", "_R"), ("_RNvC", "_RNvC"), ("_ZN3fo", "_ZN3fo"),
])
def test_names_of_c_and_cxx(mangled: str, plain: str) -> None:
    assert demangle(mangled) == plain


@pytest.mark.parametrize(("mangled", "plain"), [  # Itanium C++ ABI, 5.1: its own examples
    ("_Z1fv", "f()"), ("_Z1fi", "f(int)"), ("_Z3foo3bar", "foo(bar)"), ("_ZrmRK1XS1_", "operator%(X const&, X const&)"),
    ("_ZplR1XS0_", "operator+(X&, X&)"), ("_ZlsRK1XS1_", "operator<<(X const&, X const&)"),
    ("_Z3FooIA4_iE", "Foo<int [4]>"), ("_Z1fIiEvi", "void f<int>(int)"),
    ("_Z5firstI3DuoEvS0_", "void first<Duo>(Duo)"), ("_Z3fooIiPFidEiEvv", "void foo<int, int (*)(double), int>()"),
    ("_ZN1N1fE", "N::f"), ("_ZN6System5Sound4beepEv", "System::Sound::beep()"),
    ("_ZN5Arena5levelE", "Arena::level"), ("_ZN5StackIiiE5levelE", "Stack<int, int>::level"),
    ("_Z1fI1XEvPVN1AIT_E1TE", "void f<X>(A<X>::T volatile*)"), ("_ZngILi42EEvN1AIXplT_Li2EEE1TE",
                                                               "void operator-<42>(A<(42)+(2)>::T)"),
    ("_Z4makeI7FactoryiET_IT0_Ev", "Factory<int> make<Factory, int>()"), ("_ZTV1A", "vtable for A"),
])
def test_the_cxx_abis_examples(mangled: str, plain: str) -> None:
    assert demangle(mangled) == plain


@pytest.mark.parametrize(("mangled", "plain"), [  # RFC 2603's examples, and rustc's documentation of v0
    ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
    ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
    ("_RNvMs_Cs1234_7mycrateNtB4_3Foo3bar", "<mycrate::Foo>::bar"),
    ("_RNCNvC7mycrate4main0B3_", "mycrate::main::{closure#0}"),
    ("_RNvXCs1234_7mycrateNtB2_3FooNtNtC3std5clone5Clone5clone", "<mycrate::Foo as std::clone::Clone>::clone"),
    ("_RINvNtC3std3mem8align_ofjE", "std::mem::align_of::<usize>"),
    ("_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>"),
    ("_RINvNtC3std3mem8align_ofINtNtC3std3vec3VechEE", "std::mem::align_of::<std::vec::Vec<u8>>"),
    ("_RINvC7mycrate7exampleReE", "mycrate::example::<&str>"),
    ("_RINvC7mycrate7exampleTlhEE", "mycrate::example::<(i32, u8)>"),
    ("_RINvC7mycrate7exampleAtj8_E", "mycrate::example::<[u16; 8]>"),
    ("_RINvC7mycrate7exampleFUKCEuE", 'mycrate::example::<unsafe extern "C" fn()>'),
    ("_RINvC7mycrate7exampleKb1_E", "mycrate::example::<true>"),
    ("_RINvC7mycrate7exampleKc76_E", "mycrate::example::<'v'>"),
    ("_RNvC7mycrateu8gdel_5qa", "mycrate::gödel"),
    ("_RNvC6_123foo3bar", "123foo::bar"),
    ("_RNvC7mycrate3foo.llvm.9D1C9369", "mycrate::foo"),
    ("_ZN5alloc3vec12Vec$LT$T$GT$4push17h1234567890abcdefE", "alloc::vec::Vec<T>::push"),
    ("_ZN4core3fmt9Formatter3pad17hb2f2fd9bc9d67b7bE.llvm.12345", "core::fmt::Formatter::pad"),
    ("_RNvC7mycrate3foo.cold", "mycrate::foo [clone .cold]"),
    ("_RNvC7mycrate3foo.llvm.9D1C9369.cold.1", "mycrate::foo [clone .cold.1]"),
    ("_ZN4core3fmt9Formatter3pad17hb2f2fd9bc9d67b7bE.cold", "core::fmt::Formatter::pad [clone .cold]"),
    ("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h0123456789abcdefE",
     "<Test + 'static as foo::Bar<Test>>::bar"),
])
def test_names_of_rust(mangled: str, plain: str) -> None:
    assert demangle(mangled) == plain


@pytest.mark.parametrize("name", ["_Z" + "P" * (MAX_NAME + 1), "_ZN" + "3foo" * 1000 + "E", "_R" + "B_" * 1000,
                                  "_ZN\N{SNOWMAN}17h1234567890abcdefE", "_RINvB0_B0_B0_B0_B0_B0_B0_B0_"])
def test_hostile_names_stay_as_they_are(name: str) -> None:
    assert demangle(name) == name


def doubling(levels: int) -> str:
    """A function whose argument's type is a pair of pairs of …: each level is the one before, twice."""
    types, last = "", "i"
    for level in range(levels):
        types += f"1XI{last}{last}E"
        last = f"S{np.base_repr(2 * level, 36)}_"  # each level adds X and X<…> to what can be referred to
    return f"_Z1f{types}"


def test_a_name_that_stands_for_an_enormous_text_stays_as_it_is() -> None:
    began = time.perf_counter()
    assert len(demangle(doubling(8))) > len(doubling(8))
    assert demangle(doubling(30)) == doubling(30)
    doubled = "_RINvC1a1b" + "TB8_B8_EB" * 40 + "E"
    assert len(demangle(doubled)) <= MAX_TEXT
    assert time.perf_counter() - began < 1


def test_mutated_names_take_no_time() -> None:
    chance = random.Random(7)
    seeds = ["_ZNSt6vectorIiSaIiEE9push_backEOi", "_ZngILi42EEvN1AIXplT_Li2EEE1TE", doubling(10),
             "_RNvXCs1234_7mycrateNtB2_3FooNtNtC3std5clone5Clone5clone",
             "_RINvNtC3std3mem8align_ofINtNtC3std3vec3VechEE", "_RNvC7mycrateu8gdel_5qa"]
    slowest = 0.0
    for _ in range(20000):
        name = list(chance.choice(seeds) * chance.choice((1, 1, 4)))
        for _ in range(chance.randrange(1, 6)):
            name[chance.randrange(2, len(name))] = chance.choice(string.ascii_letters + string.digits + "_")
        began = time.perf_counter()
        text = demangle("".join(name))
        slowest = max(slowest, time.perf_counter() - began)
        assert len(text) <= max(MAX_TEXT, len(name))
    assert slowest < 0.2


def test_real_names_agree_with_binutils() -> None:
    library = Path(subprocess.run(["g++", "-print-file-name=libstdc++.so.6"], capture_output=True, text=True,
                                  check=True).stdout.strip()).resolve()
    functions = functions_of(Elf.open(library))
    names = sorted({functions.name(index) for index in range(len(functions))})
    listed = subprocess.run(["nm", "-D", "-C", "--without-symbol-versions", library], capture_output=True, text=True,
                            check=True).stdout
    plain = {line.split(" ", 2)[2] for line in listed.splitlines() if line[:1] != " "}
    mangled = [name for name in names if name.startswith("_Z") and not name.endswith("@plt")]
    assert len(mangled) > 3000
    assert {demangle(name) for name in mangled} - plain == set()
    began = time.perf_counter()
    demangle.cache_clear()
    for name in mangled:
        demangle(name)
    assert (time.perf_counter() - began) / len(mangled) < 100e-6  # 10,000 names a second even when all is busy
