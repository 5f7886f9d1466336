# Prints the linker's version script of a shared library: what OpenSSL's own list names is exported.
# OpenSSL's Makefile calls it with pairs of options and values.
use strict;
use warnings;

my %options = @ARGV;
open(my $list, '<', $options{'--ordinals'}) or die "$options{'--ordinals'}: $!";
print "OPENSSL_TEST {\n    global:\n";
while (my $line = <$list>) {
    print "        $1;\n" if $line =~ /^(\w+)\s+\S+\s+\S+\s+EXIST:/;
}
print "    local: *;\n};\n";
