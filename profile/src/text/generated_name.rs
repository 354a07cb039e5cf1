//! Names of classes that generators number or hash.
//!
//! Problem: the number or hash differs between runs, so a comparison would show one method as two.
//! Approach: what follows the marks of well-known generators is replaced by `*`. Only marks that no person would
//! write are listed: `Script2` may be an ordinary class.

use std::borrow::Cow;
use std::ops::Range;

/// The characters that a generator may put behind its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffix {
    Number,
    /// Hexadecimal digits, and numbers behind underscores where that name is taken.
    Hash,
    /// Letters and digits, drawn at random.
    Random,
    /// Like `lambda$wrap$2$2118435690`: a method, and a hash of at least [`LEAST_HASH`] digits.
    MethodAndHash,
}

/// Fewest digits of a hash; shorter numbers are those that the JDK gives the lambdas of a class.
const LEAST_HASH: usize = 5;

/// Marks of generated names, what follows them, and where the generator makes it.
const GENERATORS: [(&str, Suffix, &str); 19] = [
    (
        "jdk.proxy",
        Suffix::Number,
        "java.lang.reflect.Proxy, the package of a dynamic module (JDK 16 and newer)",
    ),
    (".$Proxy", Suffix::Number, "java.lang.reflect.Proxy"),
    ("reflect.GeneratedMethodAccessor", Suffix::Number, "jdk.internal.reflect.MethodAccessorGenerator"),
    ("reflect.GeneratedConstructorAccessor", Suffix::Number, "jdk.internal.reflect.MethodAccessorGenerator"),
    (
        "reflect.GeneratedSerializationConstructorAccessor",
        Suffix::Number,
        "jdk.internal.reflect.MethodAccessorGenerator",
    ),
    ("$$Lambda$", Suffix::MethodAndHash, "lambda classes that tools name after their method"),
    ("CGLIB$$FastClass$$", Suffix::Hash, "org.springframework.cglib.core.SpringNamingPolicy (Spring 6)"),
    (
        "CGLIB$$",
        Suffix::Hash,
        "net.sf.cglib.core.DefaultNamingPolicy, org.springframework.cglib.core.SpringNamingPolicy",
    ),
    ("ByGuice$$", Suffix::Hash, "com.google.inject.internal.BytecodeGen"),
    ("$ByteBuddy$", Suffix::Random, "net.bytebuddy.NamingStrategy.SuffixingRandom"),
    (
        "$auxiliary$",
        Suffix::Random,
        "net.bytebuddy.implementation.auxiliary.AuxiliaryType.NamingStrategy.SuffixingRandom",
    ),
    ("$HibernateProxy$", Suffix::Random, "org.hibernate.proxy.pojo.bytebuddy.ByteBuddyProxyHelper"),
    (
        "$HibernateBasicProxy$",
        Suffix::Random,
        "org.hibernate.bytecode.internal.bytebuddy.BasicProxyFactoryImpl",
    ),
    (
        "$HibernateInstantiator$",
        Suffix::Random,
        "org.hibernate.bytecode.internal.bytebuddy.BytecodeProviderImpl",
    ),
    (
        "$HibernateAccessOptimizer$",
        Suffix::Random,
        "org.hibernate.bytecode.internal.bytebuddy.BytecodeProviderImpl",
    ),
    ("$MockitoMock$", Suffix::Number, "org.mockito.internal.creation.bytebuddy.SubclassBytecodeGenerator"),
    ("_$$_jvst", Suffix::Hash, "javassist.util.proxy.ProxyFactory"),
    ("_$$_javassist_", Suffix::Number, "javassist.util.proxy.ProxyFactory before 3.16"),
    ("ASMAccessorImpl_", Suffix::Hash, "org.mvel2.optimizers.impl.asm.ASMAccessorOptimizer"),
];

/// Returns the name of a class or method with `*` in place of the numbers and hashes of generators:
/// `shop.Cart$$EnhancerBySpringCGLIB$$1b2c3d4e.sum` becomes `shop.Cart$$EnhancerBySpringCGLIB$$*.sum`.
pub fn folded(name: &str) -> Cow<'_, str> {
    let mut folded = Cow::Borrowed(name);
    for (mark, suffix, _) in GENERATORS {
        if folded.contains(mark) {
            folded = Cow::Owned(folded_after(&folded, mark, suffix));
        }
    }
    folded
}

fn folded_after(name: &str, mark: &str, suffix: Suffix) -> String {
    let mut parts = name.split(mark);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Range { start, end } = suffix.place(part);
        text.push_str(mark);
        text.push_str(&part[..start]);
        text.push_str(if start < end { "*" } else { "" });
        text.push_str(&part[end..]);
    }
    text
}

impl Suffix {
    /// Returns the range of the number or hash in the text after the mark; empty if it has another form.
    fn place(self, text: &str) -> Range<usize> {
        let word = text
            .find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
            .unwrap_or(text.len());
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match self {
            Self::Number if is_number(&text[..word]) => 0..word,
            Self::Hash if text[..word].bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'_') => {
                0..word
            }
            Self::Random => 0..word,
            Self::MethodAndHash => {
                let class = text.split('.').next().unwrap_or_default();
                let hash = class.rsplit('$').next().unwrap_or_default();
                let is_hash = hash.len() >= LEAST_HASH && hash.len() < class.len() && is_number(hash);
                if is_hash { class.len() - hash.len()..class.len() } else { 0..0 }
            }
            _ => 0..0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_hashes_of_generators_are_folded() {
        for (name, expected) in [
            ("app.Ctl$$EnhancerBySpringCGLIB$$9f0e1d2c.burn", "app.Ctl$$EnhancerBySpringCGLIB$$*.burn"),
            ("app.Ctl$$FastClassBySpringCGLIB$$1a.burn", "app.Ctl$$FastClassBySpringCGLIB$$*.burn"),
            ("app.Ctl$$EnhancerByCGLIB$$1a2b3c4d_2.CGLIB$run$0", "app.Ctl$$EnhancerByCGLIB$$*.CGLIB$run$0"),
            ("app.Svc$$SpringCGLIB$$0.burn", "app.Svc$$SpringCGLIB$$*.burn"),
            ("app.Svc$$SpringCGLIB$$FastClass$$1.burn", "app.Svc$$SpringCGLIB$$FastClass$$*.burn"),
            ("app.Job$$EnhancerByGuice$$5ad1.run", "app.Job$$EnhancerByGuice$$*.run"),
            ("app.User$ByteBuddy$a1B2c3D4.get", "app.User$ByteBuddy$*.get"),
            ("app.User$ByteBuddy$a1B2c3D4$auxiliary$x9Y8.call", "app.User$ByteBuddy$*$auxiliary$*.call"),
            ("app.User$HibernateProxy$a1B2c3D4.get", "app.User$HibernateProxy$*.get"),
            ("app.Mock$MockitoMock$2118435690.get", "app.Mock$MockitoMock$*.get"),
            ("com.sun.proxy.$Proxy41.run", "com.sun.proxy.$Proxy*.run"),
            ("jdk.proxy2.$Proxy41.run", "jdk.proxy*.$Proxy*.run"),
            (
                "jdk.internal.reflect.GeneratedMethodAccessor101.invoke",
                "jdk.internal.reflect.GeneratedMethodAccessor*.invoke",
            ),
            ("app.User_$$_jvst4f_1.get", "app.User_$$_jvst*.get"),
            ("app.Context$$Lambda$lambda$wrap$2$2118435690.run", "app.Context$$Lambda$lambda$wrap$2$*.run"),
            ("ASMAccessorImpl_21184356900211843569.getValue", "ASMAccessorImpl_*.getValue"),
        ] {
            assert_eq!(folded(name), expected);
        }
    }

    #[test]
    fn names_that_people_may_write_are_kept() {
        for name in [
            "app.Script2.run",
            "org.codehaus.janino.SC7.eval",
            "app.Money$Proxy2.get",
            "app.$Proxying.run",
            "app.C.lambda$run$12345",
            "app.Context$$Lambda$lambda$wrap$2.run",
            "app.Ctl$$SpringCGLIB$$name.run",
            "app.Cart.sum",
            "JavaCalls::call_helper",
            "",
        ] {
            assert_eq!(folded(name), name);
        }
    }
}
