/* SPDX-License-Identifier: MIT */
/* Symbol tables of files; symbols.h says what is guaranteed. */
#define _GNU_SOURCE
#include "symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct file {
	const char *start;
	uint64_t size;
};

static bool inside(const struct file *file, uint64_t at, uint64_t size)
{
	return at <= file->size && size <= file->size - at;
}

static bool open_file(const char *path, struct file *ret)
{
	struct stat status;
	long fd = PTW_SYS(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0, 0, 0), start = -1;
	if (fd < 0)
		return false;
	if (PTW_SYS(SYS_fstat, fd, &status, 0, 0, 0, 0) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
		start = PTW_SYS(SYS_mmap, 0, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	ptw_close((int)fd);
	*ret = (struct file){(const char *)start, (uint64_t)status.st_size};
	return start >= 0 || start < -4095;
}

/* The section headers; NULL when this is no file we read. They lie at multiples of 8 in what the linker wrote. */
static const Elf64_Shdr *sections_of(const struct file *file, unsigned *count)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)file->start;
	if (file->size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
	    header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shoff % 8)
		return NULL;
	*count = header->e_shnum;
	if (!inside(file, header->e_shoff, *count * sizeof(Elf64_Shdr)))
		return NULL;
	return (const Elf64_Shdr *)(const void *)(file->start + header->e_shoff);
}

static bool same(const struct file *file, const Elf64_Shdr *strings, uint32_t at, const char *name)
{
	uint64_t length = strlen(name) + 1;
	return at <= strings->sh_size && length <= strings->sh_size - at &&
	       memcmp(file->start + strings->sh_offset + at, name, length) == 0;
}

static bool is_variable(const Elf64_Sym *symbol)
{
	unsigned type = ELF64_ST_TYPE(symbol->st_info);
	return symbol->st_shndx != SHN_UNDEF && symbol->st_shndx < SHN_LORESERVE &&
	       (type == STT_OBJECT || type == STT_COMMON || type == STT_NOTYPE);
}

static unsigned search(const struct file *file, const Elf64_Shdr *table, const Elf64_Shdr *strings, const char *name,
		       struct ptw_symbol *ret, unsigned room)
{
	unsigned found = 0;
	if (table->sh_offset % 8 || !inside(file, table->sh_offset, table->sh_size) ||
	    !inside(file, strings->sh_offset, strings->sh_size))
		return 0;
	const Elf64_Sym *symbol = (const Elf64_Sym *)(const void *)(file->start + table->sh_offset);
	for (uint64_t i = 0; i < table->sh_size / sizeof *symbol && found < room; i++)
		if (is_variable(&symbol[i]) && same(file, strings, symbol[i].st_name, name))
			ret[found++] = (struct ptw_symbol){symbol[i].st_value, symbol[i].st_size ? symbol[i].st_size : 1};
	return found;
}

unsigned ptw_symbols_find(const char *path, const char *name, struct ptw_symbol *ret, unsigned room)
{
	static const uint32_t kinds[] = {SHT_SYMTAB, SHT_DYNSYM}; /* the first has all, where it was not stripped */
	struct file file;
	unsigned count = 0, found = 0;
	if (!open_file(path, &file))
		return 0;
	const Elf64_Shdr *section = sections_of(&file, &count);
	for (unsigned kind = 0; section && kind < 2 && found == 0; kind++)
		for (unsigned i = 0; i < count && found < room; i++)
			if (section[i].sh_type == kinds[kind] && section[i].sh_link < count)
				found += search(&file, &section[i], &section[section[i].sh_link], name, ret + found,
						room - found);
	PTW_SYS(SYS_munmap, file.start, file.size, 0, 0, 0, 0);
	return found;
}
